"""Records as text, JSON, tables and columnar files, once or as they come."""
