"""Stores of RocketMQ as tables: replicas merged to brokers, ranges of a log read in parallel."""
