"""Requests that wait for messages of a topic, or of one of its queues (source: PopLongPollingService)."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from broker.rocketmq.remoting.held import Held, Waiting
from broker.rocketmq.remoting.scheduler import Scheduler
from formats.rocketmq.remoting.receipts import retry_topics

__all__ = ["ALL_QUEUES", "Place", "Waiting", "Waits", "until_ms"]

# The queue id of a request for messages of any queue.
ALL_QUEUES: Final = -1
# Maximum number of waiting requests, per place and in all (popPollingSize, maxPopPollingSize).
PLACE_MAX: Final = 1024
TOTAL_MAX: Final = 100_000
# Requests are answered this much early, as the answer takes time to arrive.
_EARLY_MS: Final = 50
_WAIT_MS_MAX: Final = 600_000

R = TypeVar("R")


class Place(NamedTuple):
    """The key of waiting requests: a topic, a group and a queue, or all queues."""

    topic: str
    group: str
    queue_id: int


class Waits(Held[Place, R]):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        # By topic and queue id, and by retry topic and None: requests for all queues get messages of retry topics.
        self._places: dict[tuple[str, int | None], dict[Place, None]] = {}

    def is_full(self, place: Place) -> bool:
        return len(self) >= TOTAL_MAX or self.count(place) > PLACE_MAX

    def add(self, place: Place, waiting: Waiting[R]) -> None:
        if place not in self:
            for key in _keys(place):
                self._places.setdefault(key, {})[place] = None
        super().add(place, waiting)

    def remove(self, place: Place, waiting: Waiting[R]) -> bool:
        is_there = super().remove(place, waiting)
        if place not in self:
            for key in _keys(place):
                places = self._places.get(key)
                if places is not None and places.pop(place, key) is None and not places:
                    del self._places[key]
        return is_there

    def places(self, topic: str, queue_id: int) -> list[Place]:
        """Return the places where requests wait for messages of a queue; those for all queues come first."""
        if not self._places:
            return []
        keys = ((topic, ALL_QUEUES), (topic, queue_id), (topic, None))
        return [place for key in keys for place in self._places.get(key, ())]


def _keys(place: Place) -> tuple[tuple[str, int | None], ...]:
    return (place.topic, place.queue_id), *((name, None) for name in retry_topics(place.topic, place.group))


def until_ms(born_ms: int, poll_ms: int, now_ms: int) -> int | None:
    """Return the time until which a request may wait; None if it may not, or its time is over.

    Clients give the time of a request by their own clocks: the wait is never longer than the polling time.
    """
    if poll_ms <= 0:
        return None
    until = min(born_ms + poll_ms, now_ms + min(poll_ms, _WAIT_MS_MAX)) - _EARLY_MS
    return until if until >= now_ms else None
