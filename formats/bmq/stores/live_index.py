"""A hash table from message keys to row numbers, for `stores.lives`; all steps work on whole numpy columns.

Open addressing with linear probing. Rows with equal hashes are compared by key. Memory is proportional to the rows
present; removed rows leave marks until the table grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LiveIndex", "mix"]

_EMPTY, _REMOVED = -1, -2
_SLOTS_MIN = 1 << 10
_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def mix(*columns: NDArray[Any]) -> NDArray[Any]:
    """Hash uint64 columns to uint64 of their shape."""
    import numpy as np

    out = columns[0] * np.uint64(_ODD[0])
    for column, odd in zip(columns[1:], _ODD[1:], strict=False):
        out ^= out >> np.uint64(29)
        out += column
        out *= np.uint64(odd)
    out ^= out >> np.uint64(32)
    out *= np.uint64(_ODD[0])
    out ^= out >> np.uint64(29)
    return out


class LiveIndex:
    """Row numbers by key; `rows` is the caller's table, a structured array whose key is the fields `names`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._present = 0
        self._used = 0
        self._allocate(_SLOTS_MIN)

    def __len__(self) -> int:
        return self._present

    def _allocate(self, slots: int) -> None:
        import numpy as np

        self._mask = slots - 1
        self._rows: NDArray[Any] = np.full(slots, _EMPTY, np.int32)
        self._hashes: NDArray[Any] = np.zeros(slots, np.uint64)

    def find(self, table: NDArray[Any], hashes: NDArray[Any], keys: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        """The row of each key, -1 for absent ones; `keys` are columns, in the order of the names."""
        import numpy as np

        found = np.full(len(hashes), -1, np.int64)
        if not self._present:
            return found
        asked = np.arange(len(hashes))
        slots = (hashes & np.uint64(self._mask)).astype(np.int64)
        while len(asked):
            rows = self._rows[slots]
            hits = np.flatnonzero((rows >= 0) & (self._hashes[slots] == hashes[asked]))
            going_on = rows != _EMPTY
            if len(hits):
                candidates = table[rows[hits]]
                same = np.ones(len(hits), bool)
                for name, column in zip(self._names, keys, strict=True):
                    same &= candidates[name] == column[asked[hits]]
                hits = hits[same]
                found[asked[hits]] = rows[hits]
                going_on[hits] = False
            asked, slots = asked[going_on], (slots[going_on] + 1) & self._mask
        return found

    def add(self, rows: NDArray[Any], hashes: NDArray[Any]) -> None:
        """Add absent rows with distinct keys."""
        import numpy as np

        if 2 * (self._used + len(rows)) > self._mask:
            self._grow(len(rows))
        self._present += len(rows)
        slots = (hashes & np.uint64(self._mask)).astype(np.int64)
        while len(rows):
            free = np.flatnonzero(self._rows[slots] < 0)
            target = slots[free]
            before = self._rows[target]
            # Two rows may claim a slot: reading back shows the last one written.
            self._rows[target] = rows[free]
            won = self._rows[target] == rows[free]
            self._hashes[target[won]] = hashes[free[won]]
            self._used += int((before[won] == _EMPTY).sum())
            left = np.ones(len(rows), bool)
            left[free[won]] = False
            rows, hashes, slots = rows[left], hashes[left], (slots[left] + 1) & self._mask

    def remove(self, rows: NDArray[Any], hashes: NDArray[Any]) -> None:
        """Remove rows, which must be present."""
        import numpy as np

        self._present -= len(rows)
        slots = (hashes & np.uint64(self._mask)).astype(np.int64)
        while len(rows):
            here = self._rows[slots] == rows
            self._rows[slots[here]] = _REMOVED
            rows, hashes, slots = rows[~here], hashes[~here], (slots[~here] + 1) & self._mask

    def _grow(self, wanted: int) -> None:
        import numpy as np

        kept = np.flatnonzero(self._rows >= 0)
        rows, hashes = self._rows[kept], self._hashes[kept]
        slots = _SLOTS_MIN
        while slots < 4 * (len(rows) + wanted):
            slots *= 2
        self._allocate(slots)
        self._present = self._used = 0
        self.add(rows, hashes)
