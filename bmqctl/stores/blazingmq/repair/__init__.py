"""Repair of damaged stores into new ones."""
