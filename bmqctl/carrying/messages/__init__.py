"""Messages of queues and topics at hand: post, follow, browse."""
