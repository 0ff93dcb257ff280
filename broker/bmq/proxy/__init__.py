"""A broker that stores nothing: it forwards to the clusters, or the other proxies, that have its queues."""
