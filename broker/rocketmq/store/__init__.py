"""The store of a RocketMQ broker: one commit log for all topics, and what is built from it."""
