"""The driver of RocketMQ connections, which the client library and the tools share."""
