"""BlazingMQ, as the tools query it."""
