"""Producers' requests: plain messages, batches, transactions, replies and messages that consumers send back."""
