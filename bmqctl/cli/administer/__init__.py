"""Commands that change a broker or a cluster."""
