"""Requests that wait for messages of a topic, or of one of its queues (source: PopLongPollingService)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["ALL_QUEUES", "Place", "Waiting", "Waits", "until_ms"]

# The queue id of a request for the messages of all queues.
ALL_QUEUES: Final = -1
# The requests that may wait, at one place and in all (popPollingSize, maxPopPollingSize).
PLACE_MAX: Final = 1024
TOTAL_MAX: Final = 100_000
# Requests are answered so much earlier than their time is over: the answer is on its way for a while.
_EARLY_MS: Final = 50
_WAIT_MS_MAX: Final = 600_000

R = TypeVar("R")


class Place(NamedTuple):
    """The key that requests wait under: a topic, a group and a queue, or all of them."""

    topic: str
    group: str
    queue_id: int


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[R]):
    """A request that waits, and until when."""

    request: R
    connection: object
    until_ms: int


class Waits(Generic[R]):
    """The requests of one kind that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._places: dict[Place, list[Waiting[R]]] = {}
        # By topic: who asks for what has come to a topic looks here.
        self._topics: dict[str, set[Place]] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def count(self, place: Place) -> int:
        """The number of requests that wait at a place."""
        return len(self._places.get(place, ()))

    def is_full(self, place: Place) -> bool:
        """Return whether no more requests may wait there."""
        return self._total >= TOTAL_MAX or self.count(place) > PLACE_MAX

    def add(self, place: Place, waiting: Waiting[R]) -> None:
        """Let a request wait."""
        self._places.setdefault(place, []).append(waiting)
        self._topics.setdefault(place.topic, set()).add(place)
        self._total += 1

    def take(self, place: Place) -> Waiting[R] | None:
        """Take out the request that has waited longest; None if none waits there."""
        waiting = self._places.get(place)
        if not waiting:
            return None
        first = waiting.pop(0)
        self._total -= 1
        if not waiting:
            self._drop(place)
        return first

    def places(self, topic: str, queue_id: int) -> list[Place]:
        """The places where requests wait for messages of a queue; those for all queues come first."""
        if topic not in self._topics:
            return []
        wanted = (ALL_QUEUES, queue_id)
        return sorted((place for place in self._topics[topic] if place.queue_id in wanted), key=_by_queue)

    def all_places(self) -> list[Place]:
        """Every place where requests wait."""
        return list(self._places)

    def take_over(self, now_ms: int) -> list[tuple[Place, Waiting[R]]]:
        """Take out the requests whose time is over."""
        return self._take_out(lambda waiting: waiting.until_ms < now_ms)

    def take_all(self) -> list[Waiting[R]]:
        """Take out all requests."""
        return [waiting for _, waiting in self._take_out(lambda waiting: True)]

    def take_connection(self, connection: object) -> None:
        """Forget the requests of a connection."""
        self._take_out(lambda waiting: waiting.connection is connection)

    def _take_out(self, wanted: Callable[[Waiting[R]], bool]) -> list[tuple[Place, Waiting[R]]]:
        found: list[tuple[Place, Waiting[R]]] = []
        for place, waiting in list(self._places.items()):
            out = [each for each in waiting if wanted(each)]
            if out:
                waiting[:] = [each for each in waiting if not wanted(each)]
                self._total -= len(out)
                found += [(place, each) for each in out]
                if not waiting:
                    self._drop(place)
        return found

    def _drop(self, place: Place) -> None:
        del self._places[place]
        places = self._topics[place.topic]
        places.discard(place)
        if not places:
            del self._topics[place.topic]


def _by_queue(place: Place) -> int:
    return place.queue_id


def until_ms(born_ms: int, poll_ms: int, now_ms: int) -> int | None:
    """The time up to which a request may wait; None if it may not, or its time is over.

    Clients say when they asked, by their own clocks: nobody waits longer than was asked for.
    """
    if poll_ms <= 0:
        return None
    until = min(born_ms + poll_ms, now_ms + min(poll_ms, _WAIT_MS_MAX)) - _EARLY_MS
    return until if until >= now_ms else None
