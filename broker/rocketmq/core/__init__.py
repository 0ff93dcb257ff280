"""The broker: what it does with the requests of clients."""
