"""Apache RocketMQ: its store, over files that are given as ports."""
