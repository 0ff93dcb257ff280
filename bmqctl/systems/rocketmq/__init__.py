"""RocketMQ, as the tools ask it."""
