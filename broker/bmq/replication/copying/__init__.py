"""A replica's copy of a partition: its files, its index of messages, and its rollovers."""
