"""`bmqctl tool`: a client for people and scripts, with the commands of `bmqtool`."""
