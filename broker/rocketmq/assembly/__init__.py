"""Composition of a RocketMQ node from configuration files, decisions and the shell."""
