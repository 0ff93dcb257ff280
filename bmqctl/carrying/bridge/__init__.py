"""Bridges that carry messages between a queue of BlazingMQ and a topic of RocketMQ."""
