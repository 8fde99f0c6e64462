"""The method on arrays in memory: no files, no tables, no store.

    step                    one step: fold votes, decide, keep flips pending, settle them
    decide, adapt, metrics  rules, selectors and budgets; adaptation to a target; scores
    beliefs                 what votes make believe: plain and dependent beliefs, confusions, priors
    kernels                 compiled loops; Numba lives only here
    data                    arrays, classes, votes, specs

Each stands on those below it.
"""
