"""The records about messages in one chunk, sorted by message, for `formats.bmq.stores.lives`."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.disk.columns import guid_numbers, key_numbers
from formats.bmq.disk.journal import (
    CONFIRM_RECORD,
    DELETION_RECORD,
    MESSAGE_RECORD,
    ConfirmReason,
    RecordType,
)
from formats.bmq.stores.live_index import mix
from formats.bmq.stores.live_table import Numbers, message_dtype
from formats.schema import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TIMESTAMP_MAX", "Course", "Events", "Kind"]

TIMESTAMP_MAX = 1 << 62
_LAYOUTS: dict[RecordType, Layout[Any]] = {
    RecordType.MESSAGE: MESSAGE_RECORD,
    RecordType.CONFIRM: CONFIRM_RECORD,
    RecordType.DELETION: DELETION_RECORD,
}


class Kind(IntEnum):
    """The effect of a record on its message."""

    MESSAGE = 0
    CONFIRM = 1
    DELETION = 2
    AUTOMATIC = 3


class Course(NamedTuple):
    """The result of each message's events; all arrays but `is_new` and `life` hold numbers of events.

    A life starts with a message carried over from the previous chunk, or with an event in `opens`. `begins` holds the
    first event of each life, in the order of the events; `is_new` is True where that is the message's record. `life` is
    the life of each event, and is meaningless for events outside any.
    """

    begins: NDArray[Any]
    is_new: NDArray[Any]
    life: NDArray[Any]
    confirms: NDArray[Any]
    deletions: NDArray[Any]
    unknown: NDArray[Any]
    duplicates: NDArray[Any]


class Events:
    """Messages, confirms and deletions among `records`, grouped by message, in the journal's order within a group.

    By event: `indexes` (into the journal), `kinds`, `group`, `queues` (numbers), `details` (a confirm's app key as
    `key_numbers`, a deletion's flag). By group: `group_keys` (queue, GUID's halves) and `hashes`.
    """

    def __init__(
        self, indexes: NDArray[Any], records: NDArray[Any], kinds: NDArray[Any], queue_numbers: Numbers
    ) -> None:
        import numpy as np

        positions = {kind: np.flatnonzero(kinds == kind) for kind in _LAYOUTS}
        found = {kind: records.take(at).view(_LAYOUTS[kind].dtype) for kind, at in positions.items()}
        self._messages, confirms, deletions = found.values()
        at = np.concatenate(list(positions.values()))
        queue_keys = np.concatenate([key_numbers(found[kind], _LAYOUTS[kind], "queue_key") for kind in found])
        guids = [guid_numbers(found[kind], _LAYOUTS[kind]) for kind in found]
        high, low = (np.concatenate([pair[half] for pair in guids]) for half in (0, 1))
        details = np.concatenate(
            [
                np.zeros(len(self._messages), np.uint64),
                key_numbers(confirms, CONFIRM_RECORD, "app_key"),
                DELETION_RECORD.column(deletions, "deletion_flag"),
            ]
        )
        what = np.repeat(
            np.array([Kind.MESSAGE, Kind.CONFIRM, Kind.DELETION], np.uint8), [len(r) for r in found.values()]
        )
        automatic = CONFIRM_RECORD.column(confirms, "reason") & np.uint64(ConfirmReason.AUTO_CONFIRMED) != 0
        what[len(self._messages) : len(self._messages) + len(confirms)][automatic] = Kind.AUTOMATIC
        self.has_automatic = bool(automatic.any())
        hashes = mix(high, low, queue_keys)
        self._order, starts = _grouped(at, (queue_keys, high, low), hashes)
        order = self._order
        heads = order[starts]
        self.group = np.cumsum(starts) - 1
        self.positions = at[order]
        self.indexes = indexes[self.positions]
        self.kinds = what[order]
        self.details = details[order]
        self.group_keys = (queue_numbers.of(queue_keys[heads]), high[heads], low[heads])
        self.hashes = hashes[heads]
        self._starts = starts
        self._records = records

    def __len__(self) -> int:
        return len(self.kinds)

    def queues(self, events: NDArray[Any]) -> NDArray[Any]:
        queues: NDArray[Any] = self.group_keys[0][self.group[events]]
        return queues

    def course(self, carried: NDArray[Any]) -> Course:
        """Compute the events' result; `carried` (bool by group) marks messages that were alive before them."""
        import numpy as np

        is_message, is_deletion = self.kinds == Kind.MESSAGE, self.kinds == Kind.DELETION
        number = np.arange(len(self))
        # The last message or deletion before an event decides whether the message is alive.
        turn = np.maximum.accumulate(np.where(is_message | is_deletion, number, -1))
        before = np.concatenate([[-1], turn[:-1]])
        in_group = before >= np.flatnonzero(self._starts)[self.group]
        carried_over = carried[self.group]
        alive = np.where(in_group, is_message[before], carried_over)
        opens = is_message & ~alive
        begin = opens | (self._starts & carried_over)
        begins = np.flatnonzero(begin)
        is_confirm = self.kinds == Kind.CONFIRM
        return Course(
            begins,
            opens[begins],
            np.cumsum(begin) - 1,
            np.flatnonzero(is_confirm & alive),
            np.flatnonzero(is_deletion & alive),
            np.flatnonzero((is_confirm | is_deletion) & ~alive),
            np.flatnonzero(is_message & alive),
        )

    def messages(self, events: NDArray[Any]) -> NDArray[Any]:
        """Rows of `message_dtype` for `events`, which must be messages."""
        import numpy as np

        records = self._messages.take(self._order[events])
        column = MESSAGE_RECORD.column
        out = np.zeros(len(events), message_dtype())
        out["index"] = self.indexes[events]
        out["timestamp"] = np.minimum(column(records, "timestamp"), np.uint64(TIMESTAMP_MAX))
        out["queue"], out["guid_high"], out["guid_low"] = (key[self.group[events]] for key in self.group_keys)
        for name, source in _COPIED:
            out[name] = column(records, source)
        out["ref_count"] = records["ref_count_high"].astype(np.int32) << 12 | out["ref_count"]
        return out

    def timestamps(self, events: NDArray[Any]) -> NDArray[Any]:
        """The times at which `events` were written, in seconds since the epoch: int64."""
        import numpy as np

        stamps = self._records["timestamp"][self.positions[events]].astype(np.uint64)
        seconds: NDArray[Any] = np.minimum(stamps, np.uint64(TIMESTAMP_MAX)).astype(np.int64)
        return seconds


_COPIED = (
    ("sequence_number", "sequence_number"),
    ("primary_lease_id", "primary_lease_id"),
    ("data_offset_dwords", "message_offset_dwords"),
    ("crc32c", "crc32c"),
    ("compression", "compression"),
    ("ref_count", "ref_count_low"),
)


def _grouped(
    positions: NDArray[Any], keys: tuple[NDArray[Any], ...], hashes: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sort by key and then by position; return the order, and a bool array that is True at the start of a key."""
    import numpy as np

    if not len(positions):
        return positions, np.zeros(0, bool)
    # A hash and a position in one number sort faster than two columns.
    width = int(positions.max()).bit_length()
    low_bits = np.uint64((1 << width) - 1)
    place = np.empty(int(positions.max()) + 1, np.int64)
    place[positions] = np.arange(len(positions))
    mixed = np.sort((hashes & ~low_bits) | positions.astype(np.uint64))
    order = place[(mixed & low_bits).astype(np.int64)]
    starts = _starts(order, keys)
    same_hash = (mixed[1:] ^ mixed[:-1]) <= low_bits
    if (same_hash & starts[1:]).any():
        # Two keys share the upper bits of the hash: sort by the keys themselves.
        order = np.lexsort((positions, *keys))
        starts = _starts(order, keys)
    return order, starts


def _starts(order: NDArray[Any], keys: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    import numpy as np

    starts = np.zeros(len(order), bool)
    starts[0] = True
    for key in keys:
        ordered = key[order]
        starts[1:] |= ordered[1:] != ordered[:-1]
    return starts
