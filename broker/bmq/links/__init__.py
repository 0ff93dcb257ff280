"""Links between brokers: dialing, admission, requests and their responses."""
