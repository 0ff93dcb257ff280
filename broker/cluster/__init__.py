"""Decisions of a cluster's nodes, without I/O, as in `broker.core`."""
