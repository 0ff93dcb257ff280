"""Client for RocketMQ's remoting protocol."""
