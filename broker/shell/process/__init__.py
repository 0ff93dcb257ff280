"""A process as its operator sees it: its log, its lines on standard output, and its end."""
