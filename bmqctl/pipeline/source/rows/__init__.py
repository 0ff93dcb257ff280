"""The rows of each table, made from a partition's records and files."""
