"""A member of a cluster: its peers, partitions and queues in one place."""
