"""Calls of consumers: messages, receipt handles, acknowledgements and lite topics."""
