"""The state of a BlazingMQ cluster and of its queues, from its nodes' answers."""
