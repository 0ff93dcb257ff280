"""How much a proxy keeps for its clients."""

from __future__ import annotations

from typing import NamedTuple

from broker.cluster.put_room import PUT_BYTES_MAX, PUTS_MAX

__all__ = ["BridgeLimits"]


class BridgeLimits(NamedTuple):
    """What a proxy keeps at most, of all queues together, of posts that are not acknowledged yet."""

    bytes_max: int = PUT_BYTES_MAX
    messages_max: int = PUTS_MAX
