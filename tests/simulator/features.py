"""What a world has besides its two queues; which of it, the seed decides by itself.

Without any of it a world is what it was before there were features: seeds that failed then still tell their story.
"""

from __future__ import annotations

from enum import Enum
from random import Random

__all__ = ["Feature", "features_of"]


class Feature(Enum):
    EVENTUAL = "a queue whose messages are acknowledged at once"
    BROADCAST = "a queue that keeps nothing"
    PARTS = "a queue whose consumers take only some of its messages"
    APPS = "an app that comes and goes while nodes run"
    PURGE = "an operator who empties queues"
    FSYNC = "nodes that wait for their disks before they say anything, and lose power at any time"


def features_of(seed: int) -> frozenset[Feature]:
    """About two in five of them."""
    random = Random(f"features {seed}")
    return frozenset(feature for feature in Feature if random.random() < 0.4)
