# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Timers: actions to be taken later, by the clock that the shell sets."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from broker.common.faults import Inconsistent

__all__ = ["Timers"]


class Timers:
    """A queue of actions by due time. An action that is no longer needed must check that itself."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """Due time of the next action; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def at(self, ms: int, action: Callable[[], None]) -> None:
        """Take `action` with the first tick at or after `ms` (of `Now.ms`)."""
        heapq.heappush(self._heap, (ms, next(self._numbers), action))

    def run(self, now_ms: int) -> None:
        """Take all due actions in order; actions that they add may wait for the next call."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        for action in due:
            try:
                action()
            except Exception as error:
                name = getattr(action, "__qualname__", repr(action))
                raise Inconsistent(f"the timed action {name}", error) from error
