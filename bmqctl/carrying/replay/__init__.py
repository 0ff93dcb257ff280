"""Messages of a store, posted once more: their selection, order, progress and outcomes."""
