"""Validation of RocketMQ stores: every record, and everything that is derived from it."""
