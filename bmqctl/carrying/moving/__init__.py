"""Copies and moves of messages between queues and topics: bridges that end, and that join ends of one system, too."""
