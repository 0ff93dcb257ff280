"""Properties of messages, as the broker stores them."""

from __future__ import annotations

from formats.rocketmq.java import hash_map_order
from formats.rocketmq.properties import encode_properties

__all__ = ["encode"]


def encode(properties: dict[str, str]) -> bytes:
    """Properties as they are stored, in the original's order."""
    return encode_properties(hash_map_order(properties))
