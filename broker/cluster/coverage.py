"""When so many nodes have said what they have that nothing acknowledged can be missing.

What is acknowledged was recorded by `quorum` of `nodes`. Those that told cover it when one of them must be among these:
when more have told than a quorum leaves out. A node with damaged files has lost what it may have acknowledged. It tells
nothing, so it is not among those that told, however few are left; that others are damaged only means that there is no
point in waiting for them.
"""

from __future__ import annotations

__all__ = ["covers"]


def covers(told: int, damaged: int, nodes: int, quorum: int) -> bool:
    """Whether all nodes have answered, `damaged` of them that they cannot tell, and the others are enough."""
    return told + damaged >= nodes and told > nodes - quorum
