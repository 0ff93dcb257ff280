"""Results of commands, and their forms as text and JSON."""
