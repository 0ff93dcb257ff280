"""Checks for monitoring systems: what is measured, the thresholds, and the verdict."""
