"""The state of a RocketMQ cluster, from its nameservers', controllers' and brokers' answers."""
