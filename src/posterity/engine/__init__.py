"""The engine: a store's operations, shard by shard.

    inspect, maintenance    what a store shows, and how it is kept in order
    steps                   operations that make a step: update, import, review, settle, revert
    plan                    which items a model should look at, and what that would bring
    evaluation              plans carried out: runs, replicas, files of votes
    labelled                models and the labelled set: registration, rehearsal
    items                   items and their ids
    ledger                  the store as it was read, its steps, and what follows from them
    executors               where shards are worked on: here, or on a Ray cluster

Each stands on those below it.
"""
