"""Composition of RocketMQ nodes, controllers and proxies from their configuration, decisions and the shell."""
