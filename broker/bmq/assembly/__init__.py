"""Composition of nodes, members of clusters and proxies from configuration, decisions and the shell."""
