"""The vocabulary of a node: messages, limits, the ledger of the cluster's state, subscription expressions."""
