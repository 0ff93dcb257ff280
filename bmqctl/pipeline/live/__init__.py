"""Streams from and to queues of a running broker."""
