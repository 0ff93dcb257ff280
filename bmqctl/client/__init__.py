"""The client: a machine that decides, without I/O, and what carries its bytes."""
