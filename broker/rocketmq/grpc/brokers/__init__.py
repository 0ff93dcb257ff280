"""The brokers that carry out calls: that of this process, or those of a cluster."""
