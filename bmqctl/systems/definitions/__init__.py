"""Domains, topics and groups as a file: `bmqctl definitions`."""
