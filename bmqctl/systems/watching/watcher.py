"""The source of samples for the screen and for `--once`: a cluster of either system."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bmqctl.systems.watching.model import Row, Sample, rows_of

__all__ = ["Purger", "Watcher", "purge_text"]

# Removes the messages of a queue, or of one of its apps, and returns a report.
Purger = Callable[[str, str], str]


class Watcher:
    """Takes samples, and keeps the last one for the rates of the next.

    `purge` is None for a system without such a command. `faults` are the exceptions of a failed sample and of a failed
    purge; their texts are reasons.
    """

    def __init__(self, take: Callable[[], Sample], faults: tuple[type[Exception], ...], purge: Purger | None) -> None:
        self._take = take
        self._before: Sample | None = None
        self.faults = faults
        self.purge = purge

    def next(self) -> Shown:
        """Take a sample. Raises one of `faults`."""
        sample = self._take()
        rows = rows_of(self._before, sample)
        self._before = sample
        return Shown(sample, rows)


class Shown(NamedTuple):
    """A sample with its rows; rates are since the previous sample."""

    sample: Sample
    rows: list[Row]


def purge_text(row: Row) -> str:
    many = "an unknown number of" if row.backlog is None else f"{row.backlog:,}"
    if row.part:
        return (
            f"Purge app {row.part} of {row.name}: the {many} messages that it has not confirmed are removed from it "
            "at the primary, and from the store if no other app needs them. This cannot be undone."
        )
    return (
        f"Purge {row.name}: all messages, now {many}, are removed at the primary and from all replicas, for all "
        "apps and consumers. This cannot be undone."
    )
