"""The examination of a host: what a broker finds on it, and what to change."""
