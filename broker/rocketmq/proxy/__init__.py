"""The brokers of a cluster behind the service for gRPC: a proxy, in a process of its own."""
