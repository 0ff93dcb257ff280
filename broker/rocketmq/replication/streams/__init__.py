"""The stream of the log from a master to its slaves: both ends, in both of its forms."""
