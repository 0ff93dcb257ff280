"""The protocol of a client without I/O: bytes in and events out, calls in and bytes out."""
