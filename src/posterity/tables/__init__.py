"""Delta Lake tables of a store, and the files they consist of."""
