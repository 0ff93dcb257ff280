"""BlazingMQ, as the tools ask it."""
