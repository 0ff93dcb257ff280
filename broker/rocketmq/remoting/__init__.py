"""Connections that speak the remoting protocol: frames in, frames out."""
