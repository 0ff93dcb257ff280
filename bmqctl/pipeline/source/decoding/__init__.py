"""Payloads decoded to columns by a schema that the user gives."""
