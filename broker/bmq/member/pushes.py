# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The nodes that a primary pushes messages to."""

from __future__ import annotations

from collections.abc import Container

from broker.bmq.links.links import HealingLinks
from formats.bmq.control.messages import NodeStatus

__all__ = ["is_pushed_to", "may_lack"]


def is_pushed_to(status: NodeStatus, links: HealingLinks, primary_id: int | None) -> bool:
    """Return True if the primary of a partition that is complete here pushes to this node with this status.

    A primary of the reference does so once this node is available, which takes all partitions. Our own primaries,
    recognised by the removals that they accept, do not wait for that.
    """
    is_own = primary_id is not None and links.takes_removals(primary_id)
    return is_own or status is not NodeStatus.STARTING


def may_lack(node_id: int, healed: Container[int], links: HealingLinks) -> bool:
    """Return True if a node may get pushes of messages that it lacks, from a primary that knows the `healed` nodes.

    Our own nodes, recognised by the removals that they accept, open no queue before they are healed.
    """
    return node_id not in healed and not links.takes_removals(node_id)
