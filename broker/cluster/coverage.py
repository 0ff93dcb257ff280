"""The condition under which the nodes' answers cover everything acknowledged.

Acknowledged records are at `quorum` of `nodes`. The nodes that answered cover them if one of them must be among these:
when more have told than a quorum leaves out. A node with damaged files has lost what it may have acknowledged. It tells
nothing, so it is not among those that told, however few are left; that others are damaged only means that there is no
point in waiting for them.
"""

from __future__ import annotations

__all__ = ["covers"]


def covers(told: int, damaged: int, nodes: int, quorum: int) -> bool:
    """Return True if all nodes have answered, `damaged` of them that they are damaged, and the others suffice."""
    return told + damaged >= nodes and told > nodes - quorum
