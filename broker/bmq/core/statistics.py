# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Statistics of a queue, in total and for a recent window (source: mqbstat::QueueStatsDomain).

Counters only grow; every `SNAPSHOT_MS` their values are kept for a while, so that recent activity is a difference. A
level (messages, bytes) is observed before each fall: in between it only rises, so no post needs a check. Times are
milliseconds, as exact as the clock of the steps.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import attrgetter, sub
from typing import Final, NamedTuple

__all__ = ["SNAPSHOT_MS", "Kept", "QueueStatistics", "Recently"]

SNAPSHOT_MS: Final = 10_000
# The snapshots cover the minute that the reference prints by default.
SNAPSHOTS_KEPT: Final = 7


class Kept(NamedTuple):
    """Counters at one moment; the maxima are of the time since the moment before."""

    puts: int
    put_bytes: int
    pushes: int
    push_bytes: int
    acks: int
    nacks: int
    confirms: int
    rejects: int
    expired: int
    waits: int
    waits_ms: int
    answers: int
    answers_ms: int
    messages_max: int
    bytes_max: int
    wait_ms_max: int
    answer_ms_max: int


class Recently(NamedTuple):
    """Activity within the window: `counters` are differences, with the maxima of the whole window."""

    counters: Kept
    wait_ms: int
    answer_ms: int


_MAXIMA: Final = 4  # the last fields of `Kept`
_NOTHING: Final = Kept(*[0] * len(Kept._fields))
_NOTHING_LATELY: Final = _NOTHING[:-_MAXIMA]
_read: Final = attrgetter(*Kept._fields)


class QueueStatistics:
    """The statistics of a queue, or of one app in it, which uses only some of the fields.

    A wait is the time from a message's arrival to its delivery, an answer the time from there to its confirm.
    """

    __slots__ = (*Kept._fields, "_kept")

    def __init__(self) -> None:
        for name in Kept._fields:
            setattr(self, name, 0)
        self._kept: deque[Kept] = deque(maxlen=SNAPSHOTS_KEPT)

    puts: int
    put_bytes: int
    pushes: int
    push_bytes: int
    acks: int
    nacks: int
    confirms: int
    rejects: int
    expired: int
    waits: int
    waits_ms: int
    answers: int
    answers_ms: int
    messages_max: int
    bytes_max: int
    wait_ms_max: int
    answer_ms_max: int

    def waited(self, ms: int) -> None:
        self.waits += 1
        self.waits_ms += ms
        if ms > self.wait_ms_max:
            self.wait_ms_max = ms

    def answered(self, ms: int) -> None:
        self.answers += 1
        self.answers_ms += ms
        if ms > self.answer_ms_max:
            self.answer_ms_max = ms

    def observe(self, messages: int, size: int) -> None:
        """Observe the level; to be called before it falls."""
        if messages > self.messages_max:
            self.messages_max = messages
        if size > self.bytes_max:
            self.bytes_max = size

    def snapshot(self, messages: int, size: int) -> None:
        self.observe(messages, size)
        values = Kept(*_read(self))
        # Unchanged values cost no memory: the same tuple is used again.
        self._kept.append(self._kept[-1] if self._kept and self._kept[-1] == values else values)
        self.messages_max, self.bytes_max = messages, size
        self.wait_ms_max = self.answer_ms_max = 0

    def recently(self, messages: int, size: int) -> Recently:
        """Return the activity since the oldest snapshot, or the start while few are kept, given the current level."""
        return _recently(Kept(*self.since(messages, size)[1]))

    def since(self, messages: int, size: int) -> tuple[tuple[int, ...], list[int]]:
        """Return the fields of `Kept` as they are, and as `recently` counts them; quicker, for very many queues."""
        self.observe(messages, size)
        now: tuple[int, ...] = _read(self)
        kept = self._kept
        reaches_back = len(kept) < SNAPSHOTS_KEPT  # to the beginning
        began = _NOTHING if reaches_back else kept[0]
        if now == began and (not kept or (kept[0] is kept[-1] and now == kept[0])):
            # Most of very many queues are idle.
            return now, [*_NOTHING_LATELY, *now[-_MAXIMA:]]
        lately = list(map(sub, now, began))
        messages_max, bytes_max, wait_max, answer_max = now[-_MAXIMA:]
        # The oldest snapshot's maxima are of the time before it.
        for each in islice(kept, not reaches_back, None):
            messages_then, bytes_then, wait_then, answer_then = each[-_MAXIMA:]
            if messages_then > messages_max:
                messages_max = messages_then
            if bytes_then > bytes_max:
                bytes_max = bytes_then
            if wait_then > wait_max:
                wait_max = wait_then
            if answer_then > answer_max:
                answer_max = answer_then
        lately[-_MAXIMA:] = messages_max, bytes_max, wait_max, answer_max
        return now, lately


def _recently(counters: Kept) -> Recently:
    return Recently(
        counters,
        counters.waits_ms // counters.waits if counters.waits else 0,
        counters.answers_ms // counters.answers if counters.answers else 0,
    )
