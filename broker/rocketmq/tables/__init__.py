"""Tables that a RocketMQ broker keeps: topics, groups, offsets, clients, locks, settings and counts."""
