"""What makes several nodes one cluster: decisions only, as in `broker.core`."""
