"""The number of nodes that an operator wants to have each message of strong consistency."""

from __future__ import annotations

__all__ = ["risk_of_copies"]


def risk_of_copies(wanted: int, nodes: int) -> str | None:
    """Return the risk if `wanted` copies do not fit a cluster of `nodes`, or None."""
    if wanted < nodes // 2 + 1:
        return (
            f"are acknowledged with {max(1, wanted)} of {nodes} copies, less than a majority: a change of primary may "
            "lose them"
        )
    if wanted > nodes:
        return f"wait for {wanted} copies, but there are only {nodes} nodes: none is acknowledged"
    return None
