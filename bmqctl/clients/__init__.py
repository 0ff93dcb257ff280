"""Clients that the tools share; the public library is `bmqctl.client`."""
