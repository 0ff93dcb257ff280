"""The state of brokers and clusters of both systems: checks, causes, definitions, samples and bundles."""
