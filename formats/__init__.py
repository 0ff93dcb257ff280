"""Codecs for all wire and disk formats of the two systems. No I/O; imports no other package of bmqctl."""
