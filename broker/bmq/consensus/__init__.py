"""Agreement: election, the replicated ledger of queues and primaries, and who may write to it."""
