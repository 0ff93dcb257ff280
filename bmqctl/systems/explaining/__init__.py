"""Explanations of queues and groups that do not proceed: each cause with what to do."""
