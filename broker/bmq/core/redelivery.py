# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Messages returned to an app: from lost consumers, and from those put aside.

There may be a million of them, to be redelivered in the order of arrival. In slices, each lot is cut into ordered runs,
newest first, and the runs are merged into the front of the waiting messages. Most lots are in order and older than all
waiting messages, and are compared only with themselves.

A message that the app no longer wants is dropped when encountered: its offset may be in files that are gone, and must
not be compared.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from broker.bmq.core.messages import Message
from broker.bmq.core.work import Work

__all__ = ["Lot", "Returning", "Wanted"]

_order: Final = attrgetter("offset")

# Oldest first: messages, or messages by GUID, or pairs of message and a stream's data by GUID.
Lot = deque[Message] | dict[bytes, Message] | dict[bytes, tuple[Message, Any]]

# Returns True if the app wants a message again; called once for each.
Wanted = Callable[[Message], bool]

# Messages sorted or moved in a unit of work.
MOVES_PER_UNIT: Final = 8


def _message_of(held: Message | tuple[Message, Any]) -> Message:
    return held[0] if type(held) is tuple else held  # type: ignore[return-value]


def _both(one: Wanted | None, other: Wanted) -> Wanted:
    return other if one is None else lambda message: one(message) and other(message)


class Returning:
    """The messages returned to the app with bit `bit`; lots are taken over and emptied."""

    __slots__ = ("_bit", "_lots", "_runs")

    def __init__(self, bit: int) -> None:
        self._bit = bit
        self._lots: deque[tuple[Lot, Wanted | None]] = deque()
        self._runs: list[deque[Message]] = []

    def add(self, lot: Lot, wanted: Wanted | None = None) -> None:
        """Take over a lot of messages, less what is not `wanted`."""
        self._lots.append((lot, wanted))

    def sift(self, wanted: Wanted) -> None:
        self._lots = deque([(lot, _both(before, wanted)) for lot, before in self._lots])
        self._lots.extend([(run, wanted) for run in self._runs])
        self._runs = []

    def __iter__(self) -> Iterator[Message]:
        for lot, _ in self._lots:
            yield from lot if isinstance(lot, deque) else map(_message_of, lot.values())
        yield from chain.from_iterable(self._runs)

    @property
    def lots(self) -> list[Lot]:
        return [*[lot for lot, _ in self._lots], *self._runs]

    def settle(self, waiting: deque[Message], work: Work) -> bool:
        """Merge messages into the ordered waiting ones, as far as the step allows; return True when done."""
        while self._lots:
            if not work.may_go_on():
                return False
            self._cut(work)
        return self._merge(waiting, work)

    def _cut(self, work: Work) -> None:
        """Make a run of the newest messages of a lot, or extend the last one."""
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
        """Move the newest message of all runs to the front of the waiting ones, repeatedly."""
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
        prefix: deque[Message] = deque()
        for _ in range(work.left * MOVES_PER_UNIT):
            if not waiting or waiting[0].offset > newest:
                break
            prefix.append(waiting.popleft())
            self._drop_first(waiting)
        work.left -= 1 + len(prefix) // MOVES_PER_UNIT
        self._runs.append(prefix)

    def _move(self, run: deque[Message], waiting: deque[Message], work: Work) -> None:
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
