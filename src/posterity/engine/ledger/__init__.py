"""The ledger: the store as it was read, its steps, and the state that follows from them."""
