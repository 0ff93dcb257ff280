"""A broker that stores nothing: its queues' roots are in clusters that it is not in, or behind other proxies."""
