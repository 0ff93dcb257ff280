"""Calls that differ between operating systems, and the limits and usage of this process."""
