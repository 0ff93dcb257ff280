"""Relay queues: queues whose primary is on another node, with the posts and confirms on their way to it."""
