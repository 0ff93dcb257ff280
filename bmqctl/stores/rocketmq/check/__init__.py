"""Validation of RocketMQ stores: every record, and everything derived from it."""
