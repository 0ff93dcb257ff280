"""Displayed names of nodes."""

from __future__ import annotations

__all__ = ["described"]


def described(node_id: int) -> str:
    """Return the displayed name of a node whose name is unknown."""
    return f"[node{node_id}, {node_id}]"
