"""The messages of RocketMQ 5's gRPC protocol, `apache.rocketmq.v2`."""
