"""The BlazingMQ node: decisions in `core` and `store`, I/O in `shell`."""
