"""The command line and the tools of bmqctl."""
