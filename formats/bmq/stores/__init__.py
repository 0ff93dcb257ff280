"""Analyses of a broker's files: validation, the lives of messages, queues, and the recovery of damaged records."""
