"""Records of a commit log as rows, JSON lines and CSV, once or as they come."""
