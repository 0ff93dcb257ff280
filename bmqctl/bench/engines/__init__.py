"""Workers of a run: one module for each client that a plan can name."""
