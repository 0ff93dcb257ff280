"""Properties of messages, as the broker stores them."""

from __future__ import annotations

from formats.rocketmq.java import hash_map_order
from formats.rocketmq.properties import encode_properties

__all__ = ["encode", "encode_few"]


def encode(properties: dict[str, str]) -> bytes:
    """Encode properties as they are stored, in the original's order."""
    return encode_properties(hash_map_order(properties))


def encode_few(properties: dict[str, str]) -> bytes:
    """Encode the properties of a message that the broker makes: the original has them in a smaller map."""
    return encode_properties(hash_map_order(properties, 16))
