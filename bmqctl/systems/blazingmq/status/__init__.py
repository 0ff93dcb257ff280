"""The state of a BlazingMQ cluster and of its queues, by what its nodes answer."""
