# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Limits of the data that a proxy keeps for its clients."""

from __future__ import annotations

from typing import NamedTuple

from broker.bmq.relay.put_room import PUT_BYTES_MAX, PUTS_MAX

__all__ = ["BridgeLimits"]


class BridgeLimits(NamedTuple):
    """Limits of the posts that a proxy keeps for all queues together until they are acknowledged."""

    bytes_max: int = PUT_BYTES_MAX
    messages_max: int = PUTS_MAX
