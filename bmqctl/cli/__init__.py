"""The command line: one module for each command, in the groups in which `--help` lists them."""
