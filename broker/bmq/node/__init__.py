"""A node: its queues and partitions, configuration changes, restoring and periodic work."""
