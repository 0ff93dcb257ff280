"""A controller: the brokers of each name, who of them is master, and which are in sync with it."""
