"""Checks for monitoring systems: measured values, thresholds, and the verdict."""
