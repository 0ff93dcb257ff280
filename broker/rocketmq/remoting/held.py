"""Waiting requests, by what they wait for, by connection, and by the end of their wait."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from broker.rocketmq.remoting.scheduler import Scheduler

__all__ = ["Held", "Waiting"]

# Maximum delay of the end of a wait.
_SPAN_MS: Final = 10
# Above this number, the requests of a closed connection are removed in slices.
_AT_ONCE: Final = 64

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Waiting(Generic[R]):
    """A waiting request, and the end of its wait. Immutable, but not frozen, which would make it slow."""

    request: R
    connection: object
    until_ms: int


class Held(Generic[K, R]):
    """The waiting requests of one kind. Adding or removing one costs the same for any number."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # In the order of arrival.
        self._at: dict[K, dict[Waiting[R], None]] = {}
        self._of: dict[object, dict[Waiting[R], K]] = {}
        self._due: dict[int, dict[Waiting[R], K]] = {}
        self._due_order: list[int] = []
        # Closed connections whose requests are still to be removed.
        self._gone: set[object] = set()
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def count(self, key: K) -> int:
        return len(self._at.get(key, ()))

    def at(self, key: K) -> list[Waiting[R]]:
        """Return the requests that wait for `key`, in the order of arrival."""
        return list(self._at.get(key, ()))

    def add(self, key: K, waiting: Waiting[R]) -> None:
        self._at.setdefault(key, {})[waiting] = None
        self._of.setdefault(waiting.connection, {})[waiting] = key
        span = -(-waiting.until_ms // _SPAN_MS)
        due = self._due.get(span)
        if due is None:
            due = self._due[span] = {}
            heapq.heappush(self._due_order, span)
        due[waiting] = key
        self._total += 1

    def remove(self, key: K, waiting: Waiting[R]) -> bool:
        """Remove a request; return False if it no longer waits, or its connection is closed."""
        waits = self._at.get(key)
        if waits is None or waiting not in waits:
            return False
        del waits[waiting]
        if not waits:
            del self._at[key]
        mine = self._of.get(waiting.connection)
        if mine is not None and mine.pop(waiting, None) is not None and not mine:
            del self._of[waiting.connection]
        due = self._due.get(-(-waiting.until_ms // _SPAN_MS))
        if due is not None:
            due.pop(waiting, None)
        self._total -= 1
        return waiting.connection not in self._gone

    def take(self, key: K) -> Waiting[R] | None:
        """Remove and return the request that has waited longest for `key`; None without any."""
        while (waits := self._at.get(key)) is not None:
            waiting = next(iter(waits))
            if self.remove(key, waiting):
                return waiting
        return None

    def end_over(self, now_ms: int, end: Callable[[Waiting[R]], object]) -> None:
        """Remove the requests whose time is over, in slices, and call `end` with each."""
        if self._has_over(now_ms):
            self._scheduler.again(self, lambda: self._end_over(now_ms, end))

    def _end_over(self, now_ms: int, end: Callable[[Waiting[R]], object]) -> Iterator[None]:
        while self._has_over(now_ms):
            for waiting, key in self._due.pop(heapq.heappop(self._due_order)).items():
                if self.remove(key, waiting):
                    end(waiting)
                    yield

    def _has_over(self, now_ms: int) -> bool:
        return bool(self._due_order) and self._due_order[0] * _SPAN_MS <= now_ms

    def end_all(self, end: Callable[[Waiting[R]], object]) -> None:
        """Remove all requests, in slices, and call `end` with each."""
        self._scheduler.add(self, self._end_all(end))

    def _end_all(self, end: Callable[[Waiting[R]], object]) -> Iterator[None]:
        for key in list(self._at):
            for waiting in self.at(key):
                if self.remove(key, waiting):
                    end(waiting)
                    yield

    def forget(self, connection: object) -> None:
        """Remove the requests of a closed connection; none of them is returned from now on."""
        mine = self._of.pop(connection, None)
        if mine is None:
            return
        self._gone.add(connection)
        work = self._forget(connection, mine)
        if len(mine) > _AT_ONCE:
            self._scheduler.add(("forget", id(mine)), work)
        else:
            for _ in work:
                pass

    def _forget(self, connection: object, mine: dict[Waiting[R], K]) -> Iterator[None]:
        for waiting, key in mine.items():
            self.remove(key, waiting)
            yield
        self._gone.discard(connection)
