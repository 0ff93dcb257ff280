# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Work that is too long for one step of the loop, done in slices with other requests between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["ITEM_UNITS", "STEP_UNITS", "Scheduler"]

# Work is counted in units, so that tests do not depend on a machine's speed: about a nanosecond on one of 2024. The
# budget of a step is about 10 ms; after requests have spent it, waiting work gets another half.
STEP_UNITS: Final = 10_000_000
ITEM_UNITS: Final = 20_000


class Scheduler:
    """The budget of the present step, and the work that continues in later steps.

    A work is an iterator that yields after each item. Works with the same key run one after the other; others take
    turns, one item each.
    """

    def __init__(self, step_units: int = STEP_UNITS) -> None:
        # The time of the last `run`.
        self.now_ms = 0
        self._step_units = step_units
        self._left = step_units
        self._keys: deque[object] = deque()
        self._works: dict[object, deque[Iterator[None]]] = {}
        # Works of `again` in progress, and whether to repeat them.
        self._again: dict[object, bool] = {}

    def spend(self, units: int) -> None:
        self._left -= units

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def add(self, key: object, work: Iterator[None]) -> None:
        works = self._works.get(key)
        if works is None:
            self._works[key] = works = deque()
            self._keys.append(key)
        works.append(work)

    def again(self, key: object, make: Callable[[], Iterator[None]]) -> None:
        """Add the work that `make` returns; if one with this key is in progress, repeat it after its end."""
        if key in self._again:
            self._again[key] = True
        else:
            self._again[key] = False
            self.add(key, self._repeat(key, make))

    def _repeat(self, key: object, make: Callable[[], Iterator[None]]) -> Iterator[None]:
        while True:
            self._again[key] = False
            yield from make()
            if not self._again[key]:
                break
            yield
        del self._again[key]

    @property
    def has_more(self) -> bool:
        return bool(self._keys)

    def run(self, now_ms: int) -> bool:
        """End a step: do work until the budget is spent, and renew it. Return False if there was no work.

        Work gets at least half of a step's budget, whatever requests have spent.
        """
        self.now_ms = now_ms
        keys = self._keys
        if not keys:
            self._left = self._step_units
            return False
        self._left = max(self._left, self._step_units // 2)
        while keys and self._left > 0:
            key = keys.popleft()
            works = self._works[key]
            self._left -= ITEM_UNITS
            try:
                next(works[0])
            except StopIteration:
                works.popleft()
            if works:
                keys.append(key)
            else:
                del self._works[key]
        self._left = self._step_units
        return True
