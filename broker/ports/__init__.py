"""What the core asks of the world, as protocols; `broker.shell` has the real ones."""
