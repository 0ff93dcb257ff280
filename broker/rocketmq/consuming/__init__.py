"""Consumers' requests: pulling, popping, lite topics, filters, and the progress of groups."""
