"""The state of a RocketMQ cluster, by what its nameservers, controllers and brokers answer."""
