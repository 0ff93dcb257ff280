"""Commands that start brokers, prepare them or put them under load."""
