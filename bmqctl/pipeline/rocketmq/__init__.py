"""Stores of RocketMQ as tables: replicas merged into brokers, and ranges of a log read in parallel."""
