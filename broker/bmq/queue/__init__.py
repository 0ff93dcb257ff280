"""Queues: admission of messages, routing to consumers, delivery, redelivery, expiry and statistics."""
