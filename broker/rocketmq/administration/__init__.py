"""Requests of administrators and nameservers: inspection, statistics, registration and retention."""
