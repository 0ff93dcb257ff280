"""Faults between records: messages that nobody posted, queues that nobody created, QLIST entries that say otherwise."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.disk.check_records import Chunk
from formats.disk.faults import Fault, fault
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import (
    CONFIRM_RECORD,
    LAYOUTS,
    QUEUE_OP_RECORD,
    ConfirmReason,
    QueueOpRecord,
    QueueOpType,
    RecordType,
)
from formats.disk.keys import KEY_SIZE, NULL_KEY
from formats.disk.padding import WORD
from formats.disk.qlist import QueueRecord, parse_queue_record
from formats.errors import FormatError
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["QlistChecker", "References"]

GUID_SIZE = 16
_NEVER = 1 << 62
_BEFORE_MESSAGE = 0  # in the place of a record's type


class Life(NamedTuple):
    """When a queue key meant something: from its CREATION to its DELETION, as indexes in the journal."""

    start: int
    end: int | None


class References:
    """Gathers who refers to which message and queue, chunk by chunk; `check` says what does not fit.

    Keeps 30 bytes per record of a message.
    """

    def __init__(self, file: str, first_record_offset: int) -> None:
        self.file = file
        self._first = first_record_offset
        self._keys: list[NDArray[Any]] = []
        self._indexes: list[NDArray[Any]] = []
        self._kinds: list[NDArray[Any]] = []
        self._app_keys: dict[tuple[bytes, bytes], int] = {}
        self.queue_ops: list[tuple[int, QueueOpRecord]] = []

    def add(self, chunk: Chunk, kind: RecordType, records: NDArray[Any], positions: NDArray[Any]) -> None:
        import numpy as np

        if kind is RecordType.JOURNAL_OP or not len(records):
            return
        if kind is RecordType.QUEUE_OP:
            for position, record in zip(positions.tolist(), records, strict=True):
                self.queue_ops.append((chunk.index + position, QUEUE_OP_RECORD.unpack(record.tobytes())))
            return
        columns = [_column(records, kind, "queue_key", KEY_SIZE), _column(records, kind, "guid", GUID_SIZE)]
        self._keys.append(np.concatenate(columns, axis=1))
        self._indexes.append(positions + chunk.index)
        kinds = np.full(len(records), kind, np.uint8)
        self._kinds.append(kinds)
        if kind is RecordType.CONFIRM:
            # Written before the message that they speak of, which may then not have been written at all.
            reasons = CONFIRM_RECORD.column(records, "reason").astype(np.uint16)
            kinds[reasons & np.uint16(ConfirmReason.AUTO_CONFIRMED) != 0] = _BEFORE_MESSAGE
            apps = np.concatenate([columns[0], _column(records, kind, "app_key", KEY_SIZE)], axis=1)
            distinct, first = np.unique(apps, axis=0, return_index=True)
            for key, at in zip(distinct, first.tolist(), strict=True):
                pair = (key[:KEY_SIZE].tobytes(), key[KEY_SIZE:].tobytes())
                self._app_keys.setdefault(pair, chunk.index + int(positions[at]))

    def check(self) -> Iterator[Fault]:
        """All faults between journal records, by kind."""
        import numpy as np

        lives: dict[bytes, list[Life]] = {}
        yield from self._queue_lives(lives)
        if not self._keys:
            return
        keys = np.concatenate(self._keys)
        indexes = np.concatenate(self._indexes)
        kinds = np.concatenate(self._kinds)
        yield from self._check_queues(keys[:, :KEY_SIZE], indexes, lives)
        yield from self._check_messages(keys, indexes, kinds)

    def check_apps(self, apps: Mapping[bytes, set[bytes]]) -> Iterator[Fault]:
        """Confirms by apps that their queue does not have; `apps` are the app keys of each queue key in QLIST."""
        for (queue_key, app_key), index in self._app_keys.items():
            if app_key != NULL_KEY and queue_key in apps and app_key not in apps[queue_key]:
                reason = f"queue {_hex(queue_key)} has no app {_hex(app_key)}"
                yield fault("unknown-app-key", self.file, self.offset_of(index), reason)

    def _queue_lives(self, lives: dict[bytes, list[Life]]) -> Iterator[Fault]:
        for index, record in self.queue_ops:
            known = lives.setdefault(record.queue_key, [])
            alive = bool(known) and known[-1].end is None
            if record.queue_op_type == QueueOpType.CREATION:
                if alive:
                    reason = f"queue {_hex(record.queue_key)} exists since {self.offset_of(known[-1].start)}"
                    yield fault("queue-created-twice", self.file, self.offset_of(index), reason)
                else:
                    known.append(Life(index, None))
            elif not alive:
                yield self._unknown_queue(index, record.queue_key)
            elif record.queue_op_type == QueueOpType.DELETION and record.app_key == NULL_KEY:
                known[-1] = known[-1]._replace(end=index)

    def _check_queues(
        self, keys: NDArray[Any], indexes: NDArray[Any], lives: Mapping[bytes, list[Life]]
    ) -> Iterator[Fault]:
        import numpy as np

        # Five bytes sort fastest as one integer.
        wide = np.zeros((len(keys), 8), np.uint8)
        wide[:, 8 - KEY_SIZE :] = keys
        numbers = wide.view(">u8").ravel().astype(np.uint64)
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=numbers[order[0]] + np.uint64(1)))
        for group in np.split(order, starts[1:]):
            key = keys[group[0]].tobytes()
            used = indexes[group]
            # Lives of one key follow each other: the last that started before a record is the one to ask.
            known = lives.get(key, [])
            begins = np.array([life.start for life in known] or [_NEVER])
            ends = np.array([_NEVER if life.end is None else life.end for life in known] or [0])
            asked = begins.searchsorted(used) - 1
            alive = (asked >= 0) & (used < ends[asked])
            for index in np.sort(used[~alive]).tolist():
                yield self._unknown_queue(index, key)

    def _check_messages(self, keys: NDArray[Any], indexes: NDArray[Any], kinds: NDArray[Any]) -> Iterator[Fault]:
        import numpy as np

        of_messages = kinds != _BEFORE_MESSAGE
        keys, indexes, kinds = keys[of_messages], indexes[of_messages], kinds[of_messages]
        if not len(keys):
            return
        # Fixed width, so that dropping trailing zeros (as numpy's byte strings do) makes no two keys equal.
        text = np.ascontiguousarray(keys).view(f"S{KEY_SIZE + GUID_SIZE}").ravel()
        by_index = np.argsort(indexes, kind="stable")
        order = by_index[np.argsort(text[by_index], kind="stable")]
        text, indexes, kinds = text[order], indexes[order], kinds[order]
        starts = np.empty(len(text), bool)
        starts[0] = True
        starts[1:] = text[1:] != text[:-1]
        is_message = kinds == RecordType.MESSAGE
        # Whether the message's own record opens its group, seen from each record of the group.
        posted = is_message[starts][np.cumsum(starts) - 1]
        after_deletion = np.zeros(len(text), bool)
        after_deletion[1:] = ~starts[1:] & (kinds[:-1] == RecordType.DELETION)
        for code, mask, reason in (
            ("unknown-message", ~posted & ~is_message, "no message record before it has"),
            # Posted again once it is gone, a message is a new one.
            ("duplicate-message", is_message & ~starts & ~after_deletion, "another message record before it has"),
            ("after-deletion", posted & ~is_message & after_deletion, "a deletion record before it has"),
        ):
            for at in np.flatnonzero(mask).tolist():
                guid = text[at].ljust(KEY_SIZE + GUID_SIZE, b"\0")[KEY_SIZE:]
                yield fault(code, self.file, self.offset_of(int(indexes[at])), f"{reason} GUID {_hex(guid)}")

    def _unknown_queue(self, index: int, key: bytes) -> Fault:
        reason = f"no queue with key {_hex(key)} exists at this point"
        return fault("unknown-queue-key", self.file, self.offset_of(index), reason)

    def offset_of(self, index: int) -> int:
        """Where the journal's record `index` lies, in bytes."""
        return self._first + index * JOURNAL_RECORD_SIZE


class QlistChecker:
    """Follows the journal's CREATION and ADDITION records through a QLIST file.

    `apps` gathers the app keys of each queue key; `end` is where the last record ended, in bytes.
    """

    def __init__(self, name: str, buffer: Buffer, first_record_offset: int) -> None:
        self.name = name
        self.apps: dict[bytes, set[bytes]] = {}
        self.end = first_record_offset
        self._buffer = buffer
        self._first = first_record_offset
        self._indexes: list[int] = []
        self._ends: list[int] = []

    def check(self, references: References) -> Iterator[Fault]:
        for index, record in references.queue_ops:
            if record.queue_op_type not in (QueueOpType.CREATION, QueueOpType.ADDITION):
                continue
            offset = record.queue_uri_record_offset_words * WORD
            if not self._first <= offset < len(self._buffer):
                where = references.offset_of(index)
                reason = f"queue record at {offset}, outside {self.name} ({self._first} to {len(self._buffer)} bytes)"
                yield fault("qlist-offset", references.file, where, reason)
                continue
            try:
                entry = parse_queue_record(self._buffer, offset)
            except FormatError as error:
                yield fault("qlist-record", self.name, error.offset, f"{error.path}: {error.reason}")
                continue
            yield from self._agreement(references, index, record, entry)
            self.end = entry.end
            self._indexes.append(index)
            self._ends.append(entry.end)
        yield from self._tail()

    def end_before(self, index: int) -> int:
        """Where the last record ended that was written before the journal's record `index`."""
        before = bisect_left(self._indexes, index)
        return self._ends[before - 1] if before else self._first

    def _agreement(
        self, references: References, index: int, record: QueueOpRecord, entry: QueueRecord
    ) -> Iterator[Fault]:
        if entry.queue_key != record.queue_key:
            where = references.offset_of(index)
            reason = f"key {_hex(entry.queue_key)}, the journal's record at {where} says {_hex(record.queue_key)}"
            yield fault("qlist-mismatch", self.name, entry.offset, reason)
        if entry.offset != self.end:
            reason = f"the record before it ends at {self.end}"
            yield fault("qlist-offset", self.name, entry.offset, reason)
        self.apps.setdefault(record.queue_key, set()).update(app.app_key for app in entry.apps)

    def _tail(self) -> Iterator[Fault]:
        if any(self._buffer[self.end : self.end + 2 * WORD]):
            yield fault("qlist-tail", self.name, self.end, "a queue record without a journal record")


def _column(records: NDArray[Any], kind: RecordType, name: str, size: int) -> NDArray[Any]:
    """Field `name` as its bytes: shape (n, size)."""
    import numpy as np

    fields = LAYOUTS[kind].dtype.fields
    assert fields is not None
    at = fields[name][1]
    raw = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), JOURNAL_RECORD_SIZE)
    return raw[:, at : at + size]


def _hex(key: bytes) -> str:
    return key.hex().upper()
