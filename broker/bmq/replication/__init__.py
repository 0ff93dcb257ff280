"""Replication of partitions: primaries, replicas, healing, and the take-over of a partition."""
