"""Commands for the messages of queues and topics."""
