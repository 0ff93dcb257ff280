"""RocketMQ stores, ours and Apache's: summary, comparison and building, above the rooms that read, dump and repair."""
