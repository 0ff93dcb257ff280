"""Live messages, as rows found by queue and GUID, and small numbers for queues and apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from formats.bmq.disk.columns import key_bytes
from formats.bmq.stores.live_index import LiveIndex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AppNumbers", "LiveTable", "Numbers", "message_dtype", "put_rows"]

_FREE = 0xFFFF_FFFF
_ROWS_MIN = 1 << 10


def message_dtype() -> np.dtype[Any]:
    """A message: its record's place and contents, and the apps that are done with it.

    `index` is the record's place in the journal, `queue` a number for `Lives.queue_keys`, `guid_high` and `guid_low`
    are for `guid_bytes`, `timestamp` is in seconds. `confirms` counts the apps whose confirm has a record, except
    automatic ones. Bits of `confirmed`, `automatic` and `purged` are for `Lives.app_keys`.
    """
    import numpy as np

    return np.dtype(
        [
            ("index", np.int64),
            ("timestamp", np.int64),
            ("guid_high", np.uint64),
            ("guid_low", np.uint64),
            ("sequence_number", np.uint64),
            ("confirmed", np.uint64),
            ("automatic", np.uint64),
            ("purged", np.uint64),
            ("queue", np.uint32),
            ("primary_lease_id", np.uint32),
            ("data_offset_dwords", np.uint32),
            ("crc32c", np.uint32),
            ("ref_count", np.int32),
            ("confirms", np.int32),
            ("compression", np.uint8),
        ]
    )


def put_rows(table: NDArray[Any], at: NDArray[Any], rows: NDArray[Any]) -> None:
    """Assign `table[at] = rows`, of one dtype; numpy would copy field by field."""
    whole = f"V{table.dtype.itemsize}"
    table.view(whole)[at] = rows.view(whole)


class LiveTable:
    """Rows of `message_dtype`. The number of a removed row may be reused."""

    def __init__(self) -> None:
        import numpy as np

        self.rows: NDArray[Any] = np.zeros(0, message_dtype())
        self._hashes: NDArray[Any] = np.zeros(0, np.uint64)
        self._free: NDArray[Any] = np.zeros(0, np.int64)
        self._free_count = 0
        self._index = LiveIndex(("queue", "guid_high", "guid_low"))

    def __len__(self) -> int:
        return len(self._index)

    def find(self, hashes: NDArray[Any], keys: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        """The row of each (queue, guid_high, guid_low), -1 if not alive: int64."""
        return self._index.find(self.rows, hashes, keys)

    def add(self, messages: NDArray[Any], hashes: NDArray[Any]) -> None:
        """Add absent messages."""
        count = len(messages)
        if count > self._free_count:
            self._grow(count)
        self._free_count -= count
        taken = self._free[self._free_count : self._free_count + count].copy()
        put_rows(self.rows, taken, messages)
        self._hashes[taken] = hashes
        self._index.add(taken, hashes)

    def remove(self, numbers: NDArray[Any]) -> None:
        self._index.remove(numbers, self._hashes[numbers])
        self.rows["queue"][numbers] = _FREE
        self._free[self._free_count : self._free_count + len(numbers)] = numbers
        self._free_count += len(numbers)

    def numbers(self, queue: int | None = None) -> NDArray[Any]:
        """The rows of one queue's messages, or of all, in order of arrival."""
        import numpy as np

        queues = self.rows["queue"]
        found = np.flatnonzero(queues != _FREE if queue is None else queues == queue)
        return found[np.argsort(self.rows["index"][found])]

    def queues(self) -> NDArray[Any]:
        """The queues with messages, ascending: int64."""
        import numpy as np

        queues = self.rows["queue"]
        return np.flatnonzero(np.bincount(queues[queues != _FREE]))

    def _grow(self, wanted: int) -> None:
        import numpy as np

        size = len(self.rows)
        new_size = max(_ROWS_MIN, size + wanted - self._free_count, size + size // 2)
        rows = np.zeros(new_size, self.rows.dtype)
        rows[:size] = self.rows
        rows["queue"][size:] = _FREE
        free = np.zeros(new_size, np.int64)
        free[: self._free_count] = self._free[: self._free_count]
        free[self._free_count : self._free_count + new_size - size] = np.arange(size, new_size)
        self._free_count += new_size - size
        self._hashes = np.concatenate([self._hashes, np.zeros(new_size - size, np.uint64)])
        self.rows, self._free = rows, free


class Numbers:
    """Assigns small numbers to distinct values, in order of appearance."""

    def __init__(self) -> None:
        import numpy as np

        self._sorted: NDArray[Any] = np.zeros(0, np.uint64)
        self._numbers: NDArray[Any] = np.zeros(0, np.uint32)

    def __len__(self) -> int:
        return len(self._sorted)

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """The numbers of `values` (uint64): uint32 of their shape."""
        import numpy as np

        numbers: NDArray[Any]
        at, missing = self._places(values)
        if missing.any():
            new = np.unique(values[missing])
            both = np.concatenate([self._sorted, new])
            numbers = np.concatenate([self._numbers, np.arange(len(self), len(both), dtype=np.uint32)])
            order = np.argsort(both, kind="stable")
            self._sorted, self._numbers = both[order], numbers[order]
            at, _ = self._places(values)
        numbers = self._numbers[at]
        return numbers

    def number(self, value: int) -> int | None:
        """The number of `value`; None if it has none."""
        import numpy as np

        at, missing = self._places(np.array([value], np.uint64))
        return None if missing[0] else int(self._numbers[at[0]])

    def values(self) -> list[int]:
        """All values, by number."""
        import numpy as np

        by_number: list[int] = self._sorted[np.argsort(self._numbers)].tolist()
        return by_number

    def _places(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        import numpy as np

        if not len(self):
            return np.zeros(len(values), np.int64), np.ones(len(values), bool)
        at = np.minimum(np.searchsorted(self._sorted, values), len(self) - 1)
        return at, self._sorted[at] != values


class AppNumbers:
    """Assigns small numbers to the apps of each queue."""

    def __init__(self) -> None:
        import numpy as np

        self._keys = Numbers()
        self._pairs = Numbers()
        self._number_of_pair: NDArray[Any] = np.zeros(0, np.int64)
        self.by_queue: dict[int, list[bytes]] = {}

    def of(self, queues: NDArray[Any], app_keys: NDArray[Any]) -> NDArray[Any]:
        """The number of each app among those of its queue: int64. `app_keys` are `key_numbers`."""
        import numpy as np

        pairs = queues.astype(np.uint64) << np.uint64(32) | self._keys.of(app_keys)
        numbers = self._pairs.of(pairs)
        known = len(self._number_of_pair)
        if len(self._pairs) > known:
            keys, new = self._keys.values(), []
            for pair in self._pairs.values()[known:]:
                apps = self.by_queue.setdefault(pair >> 32, [])
                new.append(len(apps))
                apps.append(key_bytes(keys[pair & 0xFFFF_FFFF]))
            self._number_of_pair = np.concatenate([self._number_of_pair, np.array(new, np.int64)])
        out: NDArray[Any] = self._number_of_pair[numbers]
        return out

    def number(self, queue: int, app_key: int) -> int:
        import numpy as np

        return int(self.of(np.array([queue]), np.array([app_key], np.uint64))[0])
