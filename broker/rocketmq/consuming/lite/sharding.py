"""The choice of a lite topic's broker (source: LiteShardingImpl, SendMessageActivity)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from formats.rocketmq.java import string_hash
from formats.rocketmq.remoting.bodies.routes import Permission, QueueData

__all__ = ["consistent_hash", "owner"]

_WRITE: Final = int(Permission.WRITE)
_MASK: Final = (1 << 64) - 1
_INT_MAX: Final = (1 << 31) - 1


def consistent_hash(number: int, buckets: int) -> int:
    """Return the bucket of a number; few numbers move when buckets are added (source: Guava's Hashing)."""
    state, candidate = number & _MASK, 0
    while True:
        state = (2_862_933_555_777_941_757 * state + 1) & _MASK
        following = min(_INT_MAX, int((candidate + 1) / (((state >> 33) + 1) / float(1 << 31))))
        if following >= buckets:
            return candidate
        candidate = following


def owner(queues: Iterable[QueueData], lite_topic: str) -> str | None:
    """Return the broker for messages of a lite topic, by its parent's queues, if any."""
    brokers = [
        each.broker_name for each in sorted(queues) if each.perm & _WRITE for _ in range(max(0, each.write_queue_nums))
    ]
    return brokers[consistent_hash(string_hash(lite_topic), len(brokers))] if brokers else None
