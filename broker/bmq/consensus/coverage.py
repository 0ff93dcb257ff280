"""The condition under which the nodes' answers cover everything acknowledged.

Acknowledged records are at `quorum` of `nodes`. The nodes that answered cover them if any quorum includes one of them:
if more have answered than a quorum leaves out. A node with damaged files has lost what it may have acknowledged, so it
never counts as one that answered, however few remain; damaged nodes are only not waited for.
"""

from __future__ import annotations

__all__ = ["covers"]


def covers(told: int, damaged: int, nodes: int, quorum: int) -> bool:
    """Return True if all nodes have answered, `damaged` of them that they are damaged, and the others suffice."""
    return told + damaged >= nodes and told > nodes - quorum
