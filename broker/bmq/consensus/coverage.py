"""The condition under which the nodes' answers cover everything acknowledged.

Acknowledged records are at `quorum` of `nodes`, so the answers cover them if more nodes have answered than a quorum
leaves out. A node with damaged files may have lost acknowledged records, and never counts as one that answered, however
few remain; it is only not waited for.
"""

from __future__ import annotations

__all__ = ["covers"]


def covers(told: int, damaged: int, nodes: int, quorum: int) -> bool:
    """Return True if all nodes have answered, `damaged` of them that they are damaged, and the others suffice."""
    return told + damaged >= nodes and told > nodes - quorum
