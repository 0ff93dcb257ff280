"""RocketMQ, as the tools query it."""
