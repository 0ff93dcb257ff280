"""The service for RocketMQ 5's clients: calls over gRPC, carried out by requests to the broker."""
