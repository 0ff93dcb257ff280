"""Commands that show the state of a cluster."""
