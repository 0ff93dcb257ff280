"""Faults among the journal's queue operations, its other records and QLIST, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.disk.columns import key_bytes, key_numbers
from formats.bmq.disk.journal import (
    CONFIRM_RECORD,
    LAYOUTS,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    ConfirmReason,
    QueueOpRecord,
    QueueOpType,
    RecordType,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY, hex_of
from formats.bmq.disk.padding import WORD
from formats.bmq.disk.qlist import QueueRecord, build_queue_record, parse_queue_record
from formats.bmq.stores.check_records import Chunk
from formats.bmq.stores.faults import Fault, fault
from formats.bmq.stores.source import Source
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KnownQueue", "QlistChecker", "QueueChecker"]

_NEVER = 1 << 62


class _Life(NamedTuple):
    """The life of a queue key from CREATION to DELETION, as indexes in the journal."""

    start: int
    end: int


@dataclass(slots=True)
class KnownQueue:
    """A queue as journal and QLIST describe it; `apps` are keys by id, offsets are in bytes.

    `uri` and `qlist_offset` are None if QLIST does not name it; `is_complete` is False if an entry is unreadable.
    """

    queue_key: bytes
    journal_offset: int
    uri: str | None = None
    qlist_offset: int | None = None
    apps: dict[str, bytes] = field(default_factory=dict)
    is_complete: bool = True

    def learn(self, entry: QueueRecord) -> None:
        if self.uri is None:
            self.uri, self.qlist_offset = entry.uri, entry.offset
        self.apps.update((app.app_id, app.app_key) for app in entry.apps)

    @property
    def app_keys(self) -> set[bytes]:
        return set(self.apps.values()) or {DEFAULT_APP_KEY}


class QlistChecker:
    """Follows the journal's CREATION and ADDITION records through a QLIST file.

    `end` is the end of the last entry, or None after an unreadable entry, whose length is unknown.
    """

    def __init__(self, qlist: Source, first_record_offset: int) -> None:
        self.name = qlist.name
        self.end: int | None = first_record_offset
        self._buffer = qlist.read(0, qlist.size)
        self._first = first_record_offset

    def check(self, chunk: Chunk, position: int, record: QueueOpRecord) -> Iterator[Fault | QueueRecord]:
        """Yield the entry that `record` points to, if readable, and its faults."""
        offset = record.queue_uri_record_offset_words * WORD
        if not self._first <= offset < len(self._buffer):
            self.end = None
            reason = f"queue record at {offset}, outside {self.name} ({self._first} to {len(self._buffer)} bytes)"
            yield chunk.fault("qlist-offset", position, reason)
            return
        try:
            entry = parse_queue_record(self._buffer, offset)
        except FormatError as error:
            self.end = None
            yield fault("qlist-record", self.name, error.offset, f"{error.path}: {error.reason}")
            return
        try:
            parse_uri(entry.uri)
        except FormatError as error:
            yield fault("qlist-record", self.name, entry.offset, f"QueueRecord.uri: {error.reason}")
        if entry.queue_key != record.queue_key:
            where = chunk.offset_of(position)
            reason = f"key {hex_of(entry.queue_key)}, the journal's record at {where} says {hex_of(record.queue_key)}"
            yield fault("qlist-mismatch", self.name, entry.offset, reason)
        apps = [(app.app_id, app.app_key) for app in entry.apps]
        if self._buffer[entry.offset : entry.end] != build_queue_record(entry.uri, entry.queue_key, apps):
            yield fault("reserved-not-zero", self.name, entry.offset, "QueueRecord: reserved bytes, padding or hashes")
        if self.end not in (None, entry.offset):
            yield fault("qlist-offset", self.name, entry.offset, f"the record before it ends at {self.end}")
        self.end = entry.end
        yield entry

    def check_tail(self) -> Iterator[Fault]:
        """Yield the fault after the last entry: an entry whose journal record was never written."""
        if self.end is not None and any(self._buffer[self.end : self.end + 2 * WORD]):
            yield fault("qlist-tail", self.name, self.end, "a queue record without a journal record")


class QueueChecker:
    """Follows the queues along a journal, and finds records of queues and apps that do not exist.

    `queues` are those at the end of the checked part, by key.
    """

    def __init__(self, file: str, qlist: QlistChecker | None) -> None:
        """`file` is the journal's name. Without a QLIST file `qlist` is None, and apps are unknown."""
        self.file = file
        self.queues: dict[bytes, KnownQueue] = {}
        self._qlist = qlist
        self._lives: dict[bytes, list[_Life]] = {}
        self._app_keys: dict[bytes, set[bytes]] = {}  # all apps that the queue ever had
        self._app_counts: dict[bytes, list[tuple[int, int]]] = {}  # (index, apps from there on)
        self._confirming: dict[tuple[bytes, bytes], int] = {}  # the first confirm of (queue, app), in bytes
        self._auto_confirming: set[bytes] = set()
        self._without_apps: set[bytes] = set()
        self._qlist_ends: list[tuple[int, int | None]] = []  # of this chunk: (position, end from there on)
        self._qlist_end_before = None if qlist is None else qlist.end

    def begin(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        """Apply the QUEUE_OP records of a chunk; call this before the chunk's other checks."""
        if self._qlist is not None:
            self._qlist_ends, self._qlist_end_before = [], self._qlist.end
        for position, raw in zip(positions.tolist(), records, strict=True):
            record = QUEUE_OP_RECORD.unpack(raw.tobytes())
            yield from self._apply(chunk, position, record)

    def qlist_end_before(self, position: int) -> int | None:
        """The end of QLIST when the record at `position` of the chunk was written; None if unknown."""
        return next((end for at, end in reversed(self._qlist_ends) if at < position), self._qlist_end_before)

    def _apply(self, chunk: Chunk, position: int, record: QueueOpRecord) -> Iterator[Fault]:
        key, kind = record.queue_key, record.queue_op_type
        index = chunk.index + position
        queue = self.queues.get(key)
        if kind == QueueOpType.CREATION and queue is None:
            queue = self.queues[key] = KnownQueue(key, chunk.offset_of(position))
            self._lives.setdefault(key, []).append(_Life(index, _NEVER))
        elif kind == QueueOpType.CREATION and queue is not None:
            reason = f"queue {hex_of(key)} exists since {queue.journal_offset}"
            yield chunk.fault("queue-created-twice", position, reason)
        elif queue is None:
            yield _unknown_queue(chunk, position, key)
        elif kind == QueueOpType.DELETION and record.app_key == NULL_KEY:
            self._lives[key][-1] = self._lives[key][-1]._replace(end=index)
            del self.queues[key]
            return
        if kind in (QueueOpType.CREATION, QueueOpType.ADDITION) and self._qlist is not None:
            yield from self._look_up(self._qlist, chunk, position, record, queue)
        elif kind == QueueOpType.DELETION and queue is not None:
            queue.apps = {app_id: each for app_id, each in queue.apps.items() if each != record.app_key}
        if queue is not None and queue.uri is not None and queue.is_complete:
            self._app_counts.setdefault(key, []).append((index, len(queue.app_keys)))

    def _look_up(
        self, qlist: QlistChecker, chunk: Chunk, position: int, record: QueueOpRecord, queue: KnownQueue | None
    ) -> Iterator[Fault]:
        """Compare the record with its entry in QLIST, which gives the queue's name and apps."""
        key, known = record.queue_key, False
        for found in qlist.check(chunk, position, record):
            if isinstance(found, Fault):
                yield found
                continue
            known = True
            self._app_keys.setdefault(key, set()).update(app.app_key for app in found.apps)
            if queue is not None:
                if queue.uri not in (None, found.uri):
                    reason = f"{found.uri} is {queue.uri} by the entry at {queue.qlist_offset}"
                    yield fault("qlist-mismatch", qlist.name, found.offset, reason)
                queue.learn(found)
        self._qlist_ends.append((position, qlist.end))
        if not known:
            self._forget_apps(key, queue)

    def _forget_apps(self, key: bytes, queue: KnownQueue | None) -> None:
        self._app_counts.pop(key, None)
        self._without_apps.add(key)
        if queue is not None:
            queue.is_complete = False

    def check(self, chunk: Chunk, kind: RecordType, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        """Yield a fault for each record whose queue does not exist; `records` are those of `kind` at `positions`."""
        import numpy as np

        if not len(records):
            return
        keys = key_numbers(records, LAYOUTS[kind], "queue_key")
        for number in np.unique(keys).tolist():
            key = key_bytes(number)
            used = np.flatnonzero(keys == number)
            indexes = positions[used] + chunk.index
            # Lives of one key do not overlap: the last one that started before a record decides.
            lives = self._lives.get(key, [])
            begins = np.array([life.start for life in lives] or [_NEVER])
            ends = np.array([life.end for life in lives] or [0])
            asked = begins.searchsorted(indexes) - 1
            alive = (asked >= 0) & (indexes < ends[asked])
            for at in used[~alive].tolist():
                yield _unknown_queue(chunk, int(positions[at]), key)
            if kind is RecordType.CONFIRM:
                self._note_apps(chunk, key, records[used], positions[used])

    def _note_apps(self, chunk: Chunk, key: bytes, records: NDArray[Any], positions: NDArray[Any]) -> None:
        import numpy as np

        numbers, first = np.unique(key_numbers(records, CONFIRM_RECORD, "app_key"), return_index=True)
        for number, at in zip(numbers.tolist(), first.tolist(), strict=True):
            self._confirming.setdefault((key, key_bytes(number)), chunk.offset_of(int(positions[at])))
        reasons = CONFIRM_RECORD.column(records, "reason").astype(np.uint16)
        if (reasons & np.uint16(ConfirmReason.AUTO_CONFIRMED)).any():
            self._auto_confirming.add(key)

    def check_ref_counts(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        """Yield a fault for each message whose reference count is not the number of its queue's apps.

        `records` are MESSAGE records. Copies of a rollover are not checked: their queue may have had other
        apps. Apps that confirm automatically may be missing from the count.
        """
        import numpy as np

        if not len(records):
            return
        counts = MESSAGE_RECORD.column(records, "ref_count_high").astype(np.int64) << 12
        counts |= MESSAGE_RECORD.column(records, "ref_count_low").astype(np.int64)
        keys = key_numbers(records, MESSAGE_RECORD, "queue_key")
        for number in np.unique(keys).tolist():
            key = key_bytes(number)
            history = self._app_counts.get(key)
            if not history:
                continue
            used = np.flatnonzero(keys == number)
            at = np.array([index for index, _ in history]).searchsorted(positions[used] + chunk.index) - 1
            wanted = np.array([count for _, count in history])[at]
            wrong = (at >= 0) & (counts[used] != wanted) & (counts[used] != 0)
            if key in self._auto_confirming:
                wrong &= counts[used] > wanted
            for row in np.flatnonzero(wrong).tolist():
                reason = f"{counts[used][row]}, queue {hex_of(key)} has {wanted[row]} apps"
                yield chunk.fault("ref-count", int(positions[used][row]), reason)

    def check_end(self) -> Iterator[Fault]:
        """Yield confirms by apps that their queue never had, and the fault after QLIST's last entry."""
        if self._qlist is None:
            return
        for (queue_key, app_key), offset in self._confirming.items():
            apps = self._app_keys.get(queue_key)
            if apps is not None and queue_key not in self._without_apps and app_key not in (NULL_KEY, *apps):
                reason = f"queue {hex_of(queue_key)} has no app {hex_of(app_key)}"
                yield fault("unknown-app-key", self.file, offset, reason)
        yield from self._qlist.check_tail()


def _unknown_queue(chunk: Chunk, position: int, key: bytes) -> Fault:
    return chunk.fault("unknown-queue-key", position, f"no queue with key {hex_of(key)} exists at this point")
