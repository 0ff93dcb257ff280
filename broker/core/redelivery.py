"""Messages on their way back to an app: from consumers that are gone, and from where they were put aside.

There may be a million of them, and what an app delivers again is in the order of arrival. They come in slices: first
each lot is cut into runs that are in order, from the newest message to the oldest, then the runs are merged into the
front of what waits already. Most lots are in order and older than all that waits: they cost no comparison beyond
their own.

A message that the app no longer wants is dropped where it is met. Its offset may be of files that are gone, so that it
must not be compared with others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

from broker.core.messages import Message
from broker.core.work import Work

__all__ = ["Lot", "Returning", "Wanted"]

_order = attrgetter("offset")

# Oldest first: messages, or by GUID, or by GUID what a stream knows of each beside it.
Lot = deque[Message] | dict[bytes, Message] | dict[bytes, tuple[Message, Any]]

# Whether the app wants a message again; asked once of each.
Wanted = Callable[[Message], bool]

# So many messages are sorted or moved for a unit of work.
MOVES_PER_UNIT = 8


def _message_of(held: Message | tuple[Message, Any]) -> Message:
    return held[0] if type(held) is tuple else held  # type: ignore[return-value]


def _both(one: Wanted | None, other: Wanted) -> Wanted:
    return other if one is None else lambda message: one(message) and other(message)


class Returning:
    """What comes back to the app whose bit is `bit`; lots are taken over and emptied."""

    __slots__ = ("_bit", "_lots", "_runs")

    def __init__(self, bit: int) -> None:
        self._bit = bit
        self._lots: deque[tuple[Lot, Wanted | None]] = deque()
        self._runs: list[deque[Message]] = []

    def add(self, lot: Lot, wanted: Wanted | None = None) -> None:
        """Take over a lot of messages, of which `wanted` says whether they come back; all of them without that."""
        self._lots.append((lot, wanted))

    def sift(self, wanted: Wanted) -> None:
        """Of all that comes back, let only that come back which is `wanted` as well."""
        self._lots = deque((lot, _both(before, wanted)) for lot, before in self._lots)
        self._lots.extend((run, wanted) for run in self._runs)
        self._runs = []

    def __iter__(self) -> Iterator[Message]:
        """All of them, in no order."""
        for lot, _ in self._lots:
            yield from lot if isinstance(lot, deque) else map(_message_of, lot.values())
        yield from chain.from_iterable(self._runs)

    @property
    def lots(self) -> list[Lot]:
        """All of them, for who takes them over."""
        return [*(lot for lot, _ in self._lots), *self._runs]

    def settle(self, waiting: deque[Message], work: Work) -> bool:
        """Bring messages into what waits, which is in order, as far as the step may; whether all are there."""
        while self._lots:
            if not work.may_go_on():
                return False
            self._cut(work)
        return self._merge(waiting, work)

    def _cut(self, work: Work) -> None:
        """Make a run of the newest messages of a lot, or lengthen the last one."""
        lot, wanted = self._lots[0]
        per_unit = MOVES_PER_UNIT if wanted is None else 1
        count = min(len(lot), work.left * per_unit)
        work.left -= 1 + count // per_unit
        taken: list[Message] = []
        for _ in range(count):
            message = lot.pop() if isinstance(lot, deque) else _message_of(lot.popitem()[1])
            if message.outstanding & self._bit:
                taken.append(message)
        if not lot:
            self._lots.popleft()
        taken.reverse()
        if wanted is not None:
            taken = [message for message in taken if wanted(message)]
        if not taken:
            return
        taken.sort(key=_order)
        last = self._runs[-1] if self._runs else None
        if last is not None:
            self._drop_first(last)
        if last and taken[-1].offset < last[0].offset:
            last.extendleft(reversed(taken))
        else:
            self._runs.append(deque(taken))

    def _drop_first(self, messages: deque[Message]) -> None:
        while messages and not messages[0].outstanding & self._bit:
            messages.popleft()

    def _drop_last(self, messages: deque[Message]) -> None:
        while messages and not messages[-1].outstanding & self._bit:
            messages.pop()

    def _merge(self, waiting: deque[Message], work: Work) -> bool:
        """Move the newest of all runs to the front of what waits, again and again."""
        while True:
            for run in self._runs:
                self._drop_last(run)
            self._runs = [run for run in self._runs if run]
            if not self._runs:
                return True
            if not work.may_go_on():
                return False
            self._drop_first(waiting)
            newest = max(run[-1].offset for run in self._runs)
            if waiting and waiting[0].offset < newest:
                self._split(waiting, newest, work)
            elif len(self._runs) == 1:
                self._move(self._runs[0], waiting, work)
            else:
                self._move_newest(waiting, work)

    def _split(self, waiting: deque[Message], newest: int, work: Work) -> None:
        """What waits and is older than a message of a run takes part in the merging."""
        prefix: deque[Message] = deque()
        for _ in range(work.left * MOVES_PER_UNIT):
            if not waiting or waiting[0].offset > newest:
                break
            prefix.append(waiting.popleft())
            self._drop_first(waiting)
        work.left -= 1 + len(prefix) // MOVES_PER_UNIT
        self._runs.append(prefix)

    def _move(self, run: deque[Message], waiting: deque[Message], work: Work) -> None:
        """The only run goes before all that waits."""
        count = min(len(run), work.left * MOVES_PER_UNIT)
        work.left -= 1 + count // MOVES_PER_UNIT
        waiting.extendleft([run.pop() for _ in range(count)])

    def _move_newest(self, waiting: deque[Message], work: Work) -> None:
        heap = [(-run[-1].offset, number) for number, run in enumerate(self._runs)]
        heapq.heapify(heap)
        count = work.left * MOVES_PER_UNIT // 2
        work.left -= 1
        while heap and count > 0:
            count -= 1
            _, number = heap[0]
            run = self._runs[number]
            waiting.appendleft(run.pop())
            self._drop_last(run)
            if run:
                heapq.heapreplace(heap, (-run[-1].offset, number))
            else:
                heapq.heappop(heap)
        work.left = min(work.left, count * 2 // MOVES_PER_UNIT)
