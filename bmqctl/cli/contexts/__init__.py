"""Contexts: named brokers and clusters, with what a connection to them needs, kept in one file."""
