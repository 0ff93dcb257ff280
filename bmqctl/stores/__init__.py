"""Readers, checks and repairs of the stores of both systems."""
