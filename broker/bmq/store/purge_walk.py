# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Search for messages removed by purges, in parts: one purge may concern all of the journal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.recovery import (
    Refusing,
    guids_by_queue,
    is_refused,
    record_keys,
    refused_by_purges,
    refusing_purges,
)
from formats.bmq.disk.journal import RecordType, select
from formats.bmq.disk.keys import KEY_SIZE

__all__ = ["PurgeWalk"]


class PurgeWalk:
    """Walks the journal twice up to some purges, given as their rows by queue key, until `is_over`.

    The first walk finds messages refused for want of replicas, the second the others.
    """

    def __init__(self, purges: Mapping[bytes, int]) -> None:
        self._purges = purges
        self.end = max(purges.values()) + 1
        self._row = 0
        self._knows_refused = False
        self._refused: dict[bytes, int] = {}  # by queue key and GUID: the row of the refusing deletion
        self._refusing: list[Refusing] = []

    @property
    def is_over(self) -> bool:
        return self._knows_refused and self._row >= self.end

    def advance(self, records: NDArray[np.void], count: int) -> dict[bytes, bytes]:
        """Examine the next `count` of the journal's `records`; return the purged GUIDs by queue key."""
        start, self._row = self._row, min(self._row + count, self.end)
        part = records[start : self._row]
        if self._knows_refused:
            return self._removed(part, start)
        self._look_for_refused(part, start)
        if self._row == self.end:
            self._row, self._knows_refused = 0, True
        return {}

    def _look_for_refused(self, part: NDArray[np.void], start: int) -> None:
        self._refusing += refusing_purges(part, start)
        deletions, at = select(part, RecordType.DELETION)
        rows = is_refused(deletions)
        for key, row in zip(record_keys(deletions[rows]), (at[rows] + start).tolist(), strict=True):
            if key[:KEY_SIZE] in self._purges:
                self._refused[key] = row

    def _removed(self, part: NDArray[np.void], start: int) -> dict[bytes, bytes]:
        found, at = select(part, RecordType.MESSAGE)
        at = at + start
        if self._refusing:
            kept = ~refused_by_purges(found, at, self._refusing)
            found, at = found[kept], at[kept]
        if self._refused:
            refused = self._refused
            keys = zip(record_keys(found), at.tolist(), strict=True)
            kept = np.fromiter([row > refused.get(key, -1) for key, row in keys], bool, len(found))
            found, at = found[kept], at[kept]
        gone = {key: guids_by_queue(found[at < row]).get(key, b"") for key, row in self._purges.items()}
        return {key: guids for key, guids in gone.items() if guids}
