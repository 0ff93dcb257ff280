"""Messages of a store, posted once more: which ones, in what order, how far one has come, and what became of each."""
