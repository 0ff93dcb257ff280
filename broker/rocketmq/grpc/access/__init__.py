"""The check of calls: signatures, and the rights that each call needs."""
