"""Sessions with clients and brokers: negotiation, authentication, control requests and events."""
