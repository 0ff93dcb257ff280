"""GUIDs of messages that are gone, so that a producer's second try is known (source: bmqc::OrderedHashMapWithHistory).

A GUID ends with its producer, after a count of ticks that only grows: nearly every post is later than all that its
producer posted before, and is new without a search. For the others, 64 bits of each GUID are kept: 8 bytes per message
gone, and one chance in 2**64 per message kept that a new one is taken for an old one.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["History"]

RECENT_MAX = 8192
RUN_MAX = 1 << 18


class Run(NamedTuple):
    """Sorted hashes, all from before `until_ms`."""

    hashes: NDArray[np.int64]
    until_ms: int


class History:
    """What was here within `window_ms`; 0 for no memory at all.

    `_recent` are the last, `_runs` older ones in the order of time; `_latest` are the greatest ticks by producer in
    this window, `_latest_before` those in the one before.
    """

    __slots__ = ("_latest", "_latest_before", "_recent", "_recent_since_ms", "_runs", "_turned_ms", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._recent: set[int] = set()
        self._recent_since_ms = 0
        self._runs: deque[Run] = deque()
        self._latest: dict[bytes, bytes] = {}
        self._latest_before: dict[bytes, bytes] = {}
        self._turned_ms = 0

    @property
    def size(self) -> int:
        """How many GUIDs are remembered."""
        return len(self._recent) + sum(len(run.hashes) for run in self._runs)

    def is_new(self, guid: bytes) -> bool:
        """Whether no message with this GUID has come and gone; notes that one has come.

        For the places of a GUID's parts see `formats.guid`.
        """
        producer, ticks = guid[10:], guid[3:10]
        latest = self._latest.get(producer)
        if latest is None:
            latest = self._latest_before.get(producer, b"")
        if ticks > latest:
            self._latest[producer] = ticks
            return True
        self._latest.setdefault(producer, latest)
        return not self._has(hash(guid))

    def add(self, guid: bytes, now_ms: int) -> None:
        """A message is gone."""
        recent = self._recent
        if recent:
            recent.add(hash(guid))
            if len(recent) >= RECENT_MAX:
                self._close_recent(now_ms)
        elif self.window_ms:
            self._recent_since_ms = now_ms
            recent.add(hash(guid))

    def expire(self, now_ms: int) -> None:
        """Forget what is older than the window; to be called now and then."""
        if self._recent and now_ms - self._recent_since_ms > self.window_ms // 8:
            self._close_recent(now_ms)
        while self._runs and now_ms - self._runs[0].until_ms > self.window_ms:
            self._runs.popleft()
        if (self._latest or self._latest_before) and now_ms - self._turned_ms > self.window_ms:
            self._latest, self._latest_before, self._turned_ms = {}, self._latest, now_ms

    def _has(self, value: int) -> bool:
        if value in self._recent:
            return True
        for run in reversed(self._runs):
            at = int(np.searchsorted(run.hashes, value))
            if at < len(run.hashes) and run.hashes[at] == value:
                return True
        return False

    def _close_recent(self, now_ms: int) -> None:
        hashes = np.fromiter(self._recent, np.int64, len(self._recent))
        self._recent = set()
        self._runs.append(Run(np.sort(hashes), now_ms))
        # Few long runs are searched faster than many short ones; a merge must not take long either.
        small = 0
        while small < len(self._runs) and len(self._runs[-1 - small].hashes) < RUN_MAX // 2:
            small += 1
        if small > RUN_MAX // 2 // RECENT_MAX:
            parts = [self._runs.pop().hashes for _ in range(small)]
            self._runs.append(Run(np.sort(np.concatenate(parts)), now_ms))
