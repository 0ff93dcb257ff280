"""Offsets, appends and recovery over writable buffers; which files and when is decided by `broker.bmq.partition`."""
