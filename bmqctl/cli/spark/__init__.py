"""Commands that hand stores to Spark."""
