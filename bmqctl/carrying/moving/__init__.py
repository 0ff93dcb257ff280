"""Copies and moves of messages between queues and topics: finite bridges, also between ends of one system."""
