"""Readers of many records or frames at once. Each has the same results as the declaration it is for."""
