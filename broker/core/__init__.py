"""Sans-I/O machines: no clock, no randomness, no files, no sockets; those come in as arguments."""
