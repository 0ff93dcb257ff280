"""The nameserver: which brokers there are, and where each topic is."""
