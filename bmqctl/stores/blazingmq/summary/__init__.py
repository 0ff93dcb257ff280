"""Summaries of stores: counts, series over time, queues and plots."""
