"""The brokers: BlazingMQ's in `bmq`, RocketMQ's in `rocketmq`; what both need in `common`, I/O in `shell`."""
