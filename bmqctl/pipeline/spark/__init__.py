"""Sessions of Spark: finding Java, starting, submitting."""
