"""A cluster that is looked at only while a page is open, at most once in an interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import trio

from bmqctl.console.cluster import Cluster, ClusterFault, Seen
from bmqctl.console.history import SampleHistory
from bmqctl.systems.watching.model import Row, Sample, Selection, rows_of, selected, whole

__all__ = ["COLUMNS", "Observer", "Overview"]

T = TypeVar("T")

COLUMNS: Final = Row._fields
TOTAL: Final = "\0"
# The second sample comes early, so that there are rates soon.
SECOND_S: Final = 0.5
# The pause after a look is at least this many times as long as the look, to spare the nodes.
PAUSE_LOOKS: Final = 4


class Overview(NamedTuple):
    """A look at a cluster, with its number and its time in seconds since 1970; `rows` are totals, `parts` their
    parts.
    """

    number: int
    at_s: float
    map: dict[str, Any]
    sample: Sample
    rows: list[Row]
    parts: dict[str, list[Row]]
    total: Row


class Observer:
    """Looks at a cluster in a thread, and keeps the past for charts.

    All pages of a person share the looks. `clock_s` returns the time of day.
    """

    def __init__(self, cluster: Cluster, interval_s: float, clock_s: Callable[[], float] = time.time) -> None:
        self.cluster = cluster
        self.interval_s = interval_s
        self.history = SampleHistory()
        self._clock_s = clock_s
        self._turn = trio.Lock()
        self._latest: Overview | None = None
        self._before: Sample | None = None
        self._looked_at_s = -1e9
        self._took_s = 0.0

    async def overview(self, after: int) -> Overview:
        """Return a look after number `after`: the last one, or a new one when it is time. Raises `ClusterFault`."""
        if (latest := self._recent(after)) is not None:
            # Another page may be waiting for the next look.
            return latest
        async with self._turn:
            if (latest := self._recent(after)) is not None:
                return latest
            await trio.sleep_until(self._looked_at_s + self._pause_s)
            began_s = trio.current_time()
            try:
                seen = await self.ask(self.cluster.look)
            finally:
                self._looked_at_s = trio.current_time()
                self._took_s = self._looked_at_s - began_s
            self._latest = self._overview(seen)
            return self._latest

    def _recent(self, after: int) -> Overview | None:
        """Return the last look if its number is higher, and the next one is not due."""
        latest = self._latest
        if latest is None or latest.number <= after:
            return None
        age_s = trio.current_time() - self._looked_at_s
        return latest if age_s < self._pause_s + self._took_s else None

    @property
    def _pause_s(self) -> float:
        wanted_s = SECOND_S if self._latest is not None and self._latest.number == 1 else self.interval_s
        return max(wanted_s, PAUSE_LOOKS * self._took_s)

    async def ask(self, question: Callable[..., T], *words: Any) -> T:
        """Call a method of the cluster in a thread. Raises `ClusterFault`, also for an answer that is not
        understood.
        """
        try:
            return await trio.to_thread.run_sync(partial(question, *words))
        except (LookupError, TypeError, ValueError, AttributeError) as fault:
            raise ClusterFault(f"a broker's answer cannot be read: {type(fault).__name__}: {fault}") from fault

    def latest(self) -> Overview | None:
        """Return the last look."""
        return self._latest

    def close(self) -> None:
        """Close the cluster's connections."""
        self.cluster.close()

    def _overview(self, seen: Seen) -> Overview:
        all_rows = rows_of(self._before, seen.sample)
        self._before = seen.sample
        rows = selected(all_rows, Selection("name", is_descending=False))
        parts: dict[str, list[Row]] = {}
        for each in _parts(all_rows):
            parts.setdefault(each.name, []).append(each)
        total = whole(TOTAL, rows) if rows else Row(TOTAL, "", "", 0.0, 0.0, 0, None, 0, None)
        at_s = self._clock_s()
        self.history.add(at_s, [total, *rows, *(each for of_one in parts.values() for each in of_one)])
        number = 1 if self._latest is None else self._latest.number + 1
        return Overview(number, at_s, seen.map, seen.sample, rows, parts, total)


def _parts(rows: Iterable[Row]) -> list[Row]:
    """Sum the apps or groups of each queue or topic over nodes."""
    grouped: dict[tuple[str, str], list[Row]] = {}
    for each in rows:
        if each.part:
            grouped.setdefault((each.name, each.part), []).append(each)
    return [whole(name, grouped[name, part]) for name, part in sorted(grouped)]
