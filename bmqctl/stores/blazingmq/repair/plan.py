"""Planner of a repair: decides which records of a partition are kept, before anything is written.

A record is kept if it and everything it refers to are sound. Values implied by the rest of the store are restored: a
constant (the magic), a number (by its slot), a payload's offset (by checksum), a queue (by QLIST or the ledger).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.repair.order import CHUNK_RECORDS, Order
from bmqctl.stores.blazingmq.repair.parts import WINDOW_SIZE, Damaged, Plan, Window, iter_places, unpack_record
from bmqctl.stores.blazingmq.repair.queues import Entry, QueueWitnesses
from bmqctl.stores.blazingmq.repair.report import Note
from formats.bmq.disk.columns import key_bytes, key_numbers
from formats.bmq.disk.data import DataRecord
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import (
    LAYOUTS,
    QUEUE_OP_RECORD,
    RECORD_MAGIC,
    ConfirmReason,
    ConfirmRecord,
    DeletionRecord,
    JournalOpRecord,
    JournalOpType,
    MessageRecord,
    QueueOpRecord,
    QueueOpType,
    Record,
    RecordType,
    SyncPointType,
    select,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY, hex_of
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.stores.check_data import read_data_record
from formats.bmq.stores.check_ledger import LedgerState
from formats.bmq.stores.source import Source, scan_source
from formats.errors import FormatError

__all__ = ["Planner"]

HOLES_MAX = 4096
_NO_GUID = bytes(16)


@dataclass(slots=True)
class _Queue:
    """A queue during the walk; `apps` are all keys that it ever had, `live` its messages' GUIDs."""

    uri: str
    apps: set[bytes]
    live: set[bytes] = field(default_factory=set)


class Unsound(Exception):
    """Reason to leave out a record."""


class Planner:
    """Walks a partition's records in number order, and decides which are kept."""

    def __init__(self, damaged: Damaged, order: Order, witnesses: QueueWitnesses, ledger: LedgerState) -> None:
        self._damaged = damaged
        self._order = order
        self._witnesses = witnesses
        self._ledger = ledger
        self._data = None if damaged.data is None else Window(damaged.data)
        self._data_end = damaged.first_payload_offset
        self._qlist_end = len(initial_bytes(FileType.QLIST, 0))
        self._plan = Plan(order)
        self._queues: dict[bytes, _Queue] = {}
        self._gone: set[bytes] = set()  # keys of deleted queues
        self._lost: dict[bytes, set[bytes]] = defaultdict(set)  # GUIDs of messages left out, by queue
        self._primaries: dict[int, Counter[int]] = defaultdict(Counter)
        self._used: set[bytes] = set()
        self._created: set[bytes] = set()
        self._holes: list[tuple[int, RecordNumber, int]] = []  # (slot after it, number, seconds)
        self._last: RecordNumber | None = None

    def plan(self, on_progress: Callable[[int, int], None]) -> Plan:
        plan, order = self._plan, self._order
        self._survey()
        self._note_order()
        total = sum(run.length for run in order.runs)
        for done, (place, raw) in enumerate(iter_places(self._damaged, order)):
            self._decide(place, raw)
            if done % CHUNK_RECORDS == 0:
                on_progress(done, total)
        self._note_tails()
        made = [RecordNumber.of(record) for record, _ in plan.inserted.values()]
        plan.last = max([self._last or RecordNumber(0, 0), *made])
        plan.outstanding = sum(len(queue.live) for queue in self._queues.values())
        return plan

    # -- before the walk

    def _survey(self) -> None:
        first = self._damaged.first_record_offset
        for index in range(0, self._order.end, CHUNK_RECORDS):
            count = min(CHUNK_RECORDS, self._order.end - index)
            records = scan_source(self._damaged.journal, first, index, count)
            for kind in LAYOUTS:
                found, _ = select(records, RecordType(kind))
                found = found[found["magic"] == RECORD_MAGIC]
                if not len(found):
                    continue
                if kind == RecordType.JOURNAL_OP:
                    for lease, node_id in zip(
                        found["primary_lease_id"].tolist(), found["primary_node_id"].tolist(), strict=True
                    ):
                        self._primaries[lease][node_id] += 1
                    continue
                if kind == RecordType.QUEUE_OP:
                    created = QUEUE_OP_RECORD.column(found, "queue_op_type") == QueueOpType.CREATION
                    self._created.update(map(key_bytes, np.unique(_keys(found[created])).tolist()))
                else:
                    self._used.update(
                        map(key_bytes, np.unique(key_numbers(found, LAYOUTS[kind], "queue_key")).tolist())
                    )

    def _note_order(self) -> None:
        plan, order, journal = self._plan, self._order, self._damaged.journal
        for start, end in order.unreadable:
            self._touch(start)
            offset, size = self._offset(start), (end - start) * JOURNAL_RECORD_SIZE
            what = "zeros" if not any(journal.read(offset, min(size, WINDOW_SIZE))) else "unreadable"
            plan.left_out.append(Note(journal.name, offset, size, "RECORDS", f"{end - start} places: {what}"))
        for run in order.misfits:
            for place in range(run.start, run.end):
                self._touch(place)
                raw = bytes(journal.read(self._offset(place), JOURNAL_RECORD_SIZE))
                self._leave(place, unpack_record(raw), "its number contradicts its neighbours'")
        for run in order.moved:
            self._touch(run.start)
            offset, size = self._offset(run.start), run.length * JOURNAL_RECORD_SIZE
            reason = f"was out of place: moved to its number in lease id {run.lease_id}"
            plan.restored.append(Note(journal.name, offset, size, "RECORDS", reason, _shown(run.first)))
        if order.moved:
            lowest = min(run.first for run in order.moved)
            self._touch(min((run.start for run in order.runs if run.first > lowest), default=order.end))

    def _touch(self, place: int) -> None:
        first = self._plan.first_damage
        self._plan.first_damage = place if first is None else min(first, place)

    def _offset(self, place: int) -> int:
        return self._damaged.first_record_offset + place * JOURNAL_RECORD_SIZE

    # -- the walk

    def _decide(self, place: int, raw: bytes) -> None:
        found = record = unpack_record(raw)
        mended = []
        original = self._order.renumbered.get(place)
        if original is not None:
            mended.append(f"number was {record.primary_lease_id}:{record.sequence_number}")
            record = record._replace(**original._asdict())
        if place in self._order.without_magic:
            mended.append("magic was damaged")
            record = record._replace(magic=RECORD_MAGIC)
        number = RecordNumber.of(record)
        self._note_hole(place, number, record.timestamp)
        try:
            record, reasons = self._examine(place, record)
        except Unsound as reason:
            self._touch(place)
            self._leave(place, record, str(reason))
            return
        mended += reasons
        if mended:
            self._touch(place)
            self._plan.restored.append(self._note(place, record, "; ".join(mended)))
        if record is not found:
            self._plan.replaced[place] = record
        self._keep(place, record, number)

    def _keep(self, place: int, record: Record, number: RecordNumber) -> None:
        plan = self._plan
        if self._last is not None:
            lease, last = self._last
            if number not in ((lease, last + 1), (number.primary_lease_id, 1)):
                # Records copied by a rollover have gaps up to its sync point.
                if plan.primary_nodes or not self._damaged.rolled_over:
                    self._touch(place)
                plan.first_sync_point = None
        is_sync_point = isinstance(record, JournalOpRecord) and record.journal_op_type == JournalOpType.SYNCPOINT
        if self._last is None and not is_sync_point and not self._damaged.rolled_over:
            self._touch(place)
        self._last = number
        plan.timestamp = record.timestamp
        if isinstance(record, JournalOpRecord) and is_sync_point:
            plan.primary_node_id = record.primary_node_id
            plan.primary_nodes.add(record.primary_node_id)
            if plan.first_sync_point is None:
                plan.first_sync_point = place

    def _note_hole(self, place: int, number: RecordNumber, timestamp: int) -> None:
        lease, sequence_number = number
        before = RecordNumber(lease, sequence_number - 1)
        if self._last is None:
            if sequence_number > 1:
                self._holes.append((place, before, timestamp))
        elif number not in ((self._last.primary_lease_id, self._last.sequence_number + 1), (lease, 1)):
            self._holes.append((place, before, timestamp))
        del self._holes[:-HOLES_MAX]

    def _examine(self, place: int, record: Record) -> tuple[Record, list[str]]:
        """Return the record as it is kept, and what was restored in it. Raises Unsound if it is not kept."""
        if isinstance(record, JournalOpRecord):
            return self._examine_sync_point(place, record)
        if isinstance(record, QueueOpRecord):
            return self._examine_queue_op(place, record)
        if record.guid == _NO_GUID:
            raise Unsound("it has no GUID")
        queue = self._queue(record.queue_key)
        if isinstance(record, MessageRecord):
            return self._examine_message(place, record, queue)
        if isinstance(record, ConfirmRecord):
            self._examine_confirm(record, queue)
        else:
            self._examine_deletion(record, queue)
        return record, []

    def _examine_sync_point(self, place: int, record: JournalOpRecord) -> tuple[Record, list[str]]:
        if record.journal_op_type != JournalOpType.SYNCPOINT:
            return record, []
        restored = []
        own = (record.primary_lease_id, record.sequence_number)
        lease, number = record.sync_point_primary_lease_id, record.sync_point_sequence_number
        if not lease or not number or lease > own[0] or (lease == own[0] and number != own[1]):
            restored.append(f"stood for {lease}:{number}")
            record = record._replace(sync_point_primary_lease_id=own[0], sync_point_sequence_number=own[1])
        sound = self._plan.first_damage is None or place < self._plan.first_damage
        ends = (record.data_file_offset_dwords * DWORD, record.qlist_file_offset_words * WORD)
        # After damage the ends always differ: they are those of the data written so far.
        if sound and self._data is not None and ends != (self._data_end, self._qlist_end):
            restored.append(f"said that DATA ends at {ends[0]} and QLIST at {ends[1]}")
        if record.sync_point_type not in (SyncPointType.REGULAR, SyncPointType.ROLLOVER):
            restored.append(f"sync_point_type was {record.sync_point_type}")
            record = record._replace(sync_point_type=SyncPointType.REGULAR)
        told = self._primary(own[0])
        if told not in (None, record.primary_node_id):
            restored.append(f"primary_node_id was {record.primary_node_id}")
            record = record._replace(primary_node_id=told)
        return record, restored

    def _primary(self, lease_id: int) -> int | None:
        """The node that had a lease, according to the ledger or most of its sync points."""
        told = self._ledger.primaries.get((self._damaged.partition_id, lease_id))
        votes = self._primaries.get(lease_id)
        return told if told is not None or not votes else votes.most_common(1)[0][0]

    # -- queues

    def _queue(self, queue_key: bytes) -> _Queue:
        """Return the queue, recreated from QLIST or the ledger if its CREATION is lost. Raises Unsound otherwise."""
        queue = self._queues.get(queue_key)
        if queue is not None:
            return queue
        lost = queue_key not in self._created and queue_key not in self._gone
        entry = self._witnesses.entry(queue_key, None) if lost and self._holes else None
        if entry is None:
            raise Unsound("its queue was never created, or is deleted")
        place, number, timestamp = self._holes.pop()
        record = QUEUE_OP_RECORD.unpack(bytes(JOURNAL_RECORD_SIZE))._replace(
            type=RecordType.QUEUE_OP,
            primary_lease_id=number[0],
            sequence_number=number[1],
            timestamp=timestamp,
            queue_key=queue_key,
            queue_op_type=QueueOpType.CREATION,
            magic=RECORD_MAGIC,
        )
        self._plan.inserted[place] = (record, entry)
        reason = "the queue's CREATION was lost: restored from QLIST or the ledger"
        self._plan.added.append(self._note(place, record, reason, entry.uri))
        self._queues[queue_key] = _Queue(entry.uri, set(entry.apps.values()) or {DEFAULT_APP_KEY})
        return self._queues[queue_key]

    def _examine_queue_op(self, place: int, record: QueueOpRecord) -> tuple[Record, list[str]]:
        kind = record.queue_op_type
        if kind not in (QueueOpType.CREATION, QueueOpType.ADDITION, QueueOpType.PURGE, QueueOpType.DELETION):
            raise Unsound(f"queue_op_type is {kind}")
        if kind == QueueOpType.CREATION:
            return self._examine_creation(place, record)
        queue = self._queue(record.queue_key)
        if kind == QueueOpType.ADDITION:
            entry = self._witnesses.entry(record.queue_key, record.queue_uri_record_offset_words * WORD)
            if entry is None:
                raise Unsound("its QLIST entry is damaged, and no other file names the apps")
            restored = []
            if entry.uri != queue.uri:
                restored.append(f"its QLIST entry named the queue {entry.uri}")
                apps = list(entry.apps.items())
                content = build_queue_record(queue.uri, record.queue_key, apps)
                entry = Entry(queue.uri, entry.apps, content, False)
            return record, restored + self._enter(place, queue, entry)
        restored = []
        if record.queue_uri_record_offset_words:
            restored.append(f"it pointed to {record.queue_uri_record_offset_words * WORD} in QLIST")
            record = record._replace(queue_uri_record_offset_words=0)
        if record.app_key == NULL_KEY:
            queue.live.clear()
            self._lost.pop(record.queue_key, None)
            if kind == QueueOpType.DELETION:
                del self._queues[record.queue_key]
                self._gone.add(record.queue_key)
        return record, restored

    def _examine_creation(self, place: int, record: QueueOpRecord) -> tuple[Record, list[str]]:
        offset = record.queue_uri_record_offset_words * WORD
        key, restored = record.queue_key, []
        at_offset = self._witnesses.key_at(offset)
        entry = self._witnesses.entry(key, offset)
        if entry is None and at_offset is not None and key != NULL_KEY:
            if at_offset in self._used or self._witnesses.is_in_ledger(at_offset):
                # Other records confirm the entry: the record's key is damaged.
                restored.append(f"queue_key was {hex_of(key)}")
                key, entry = at_offset, self._witnesses.entry(at_offset, offset)
                record = record._replace(queue_key=key)
            else:
                entry = self._witnesses.adopt(key, offset)
        if entry is None:
            raise Unsound("its QLIST entry is damaged or missing, and the ledger does not name the queue")
        if key in self._queues:
            raise Unsound("its queue exists already")
        queue = self._queues[key] = _Queue(entry.uri, set())
        self._gone.discard(key)
        return record, restored + self._enter(place, queue, entry)

    def _enter(self, place: int, queue: _Queue, entry: Entry) -> list[str]:
        queue.apps.update(entry.apps.values() or [DEFAULT_APP_KEY])
        self._plan.entries[place] = entry
        self._qlist_end += len(entry.content)
        return ["its QLIST entry was damaged or missing"] if entry.restored else []

    # -- messages

    def _examine_message(self, place: int, record: MessageRecord, queue: _Queue) -> tuple[Record, list[str]]:
        if record.guid in queue.live:
            raise Unsound("a message with this GUID is there already")
        restored: list[str] = []
        try:
            found, reason = self._payload(record, record.message_offset_dwords * DWORD)
            if found is None:
                # If its offset is damaged, the payload begins at the end of the last one.
                found, _ = self._payload(record, self._data_end)
                if found is None:
                    raise Unsound(reason)
                restored.append(f"its payload offset was {record.message_offset_dwords * DWORD}")
                record = record._replace(message_offset_dwords=found.offset // DWORD)
        except Unsound:
            self._lost[record.queue_key].add(record.guid)
            raise
        if found.offset != self._data_end:
            self._touch(place)
        self._note_data(found)
        queue.live.add(record.guid)
        self._lost[record.queue_key].discard(record.guid)
        return record, restored

    def _payload(self, record: MessageRecord, offset: int) -> tuple[DataRecord | None, str]:
        """The message's data if it is at `offset` with its checksum; otherwise None and the reason."""
        if self._data is None:
            return None, "there is no DATA file"
        if not self._damaged.first_payload_offset <= offset < self._data.size:
            return None, f"its payload offset is {offset}, outside the DATA file"
        try:
            found = read_data_record(self._data, offset)
        except FormatError as error:
            return None, f"its payload at {offset} is damaged: {error.reason}"
        crc, at, end = 0, found.app_data_offset, found.app_data_offset + found.app_data_size
        while at < end:
            piece = self._data.read(at, min(end - at, WINDOW_SIZE))
            crc = crc32c(piece, crc)
            at += len(piece) or end
        if crc != record.crc32c:
            return None, f"its payload at {offset} ({end - offset} bytes) has a wrong checksum"
        return found, ""

    def _note_data(self, found: DataRecord) -> None:
        if found.offset > self._data_end:
            self._leave_data(found.offset, "no message that is kept refers to it")
        self._data_end = max(self._data_end, found.end)

    def _leave_data(self, end: int, reason: str) -> None:
        assert self._data is not None
        note = Note(self._data.name, self._data_end, end - self._data_end, "PAYLOAD", reason)
        self._plan.left_out.append(note)

    def _examine_confirm(self, record: ConfirmRecord, queue: _Queue) -> None:
        if record.app_key != NULL_KEY and record.app_key not in queue.apps:
            raise Unsound(
                f"its queue has no app {hex_of(record.app_key)}; the message may be delivered to the app again"
            )
        if record.guid in queue.live or record.reason & ConfirmReason.AUTO_CONFIRMED:
            return
        raise Unsound(self._why_unknown(record))

    def _examine_deletion(self, record: DeletionRecord, queue: _Queue) -> None:
        if record.guid not in queue.live:
            reason = self._why_unknown(record)
            self._lost[record.queue_key].discard(record.guid)
            raise Unsound(reason)
        queue.live.discard(record.guid)

    def _why_unknown(self, record: ConfirmRecord | DeletionRecord) -> str:
        if record.guid in self._lost.get(record.queue_key, ()):
            return "its message is left out"
        return "there is no message with this GUID"

    # -- after the walk

    def _note_tails(self) -> None:
        journal, end = self._damaged.journal, self._offset(self._order.end)
        written = _written_size(journal, end)
        if written:
            reason = "an unfinished record" if written < JOURNAL_RECORD_SIZE else "no readable record"
            self._plan.left_out.append(Note(journal.name, end, written, "RECORDS", reason))
        if self._data is not None:
            written = _written_size(self._data, self._data_end)
            if written:
                self._leave_data(self._data_end + written, "no message that is kept refers to it")

    # -- notes

    def _leave(self, place: int, record: Record, reason: str) -> None:
        self._plan.left.add(place)
        self._plan.left_out.append(self._note(place, record, reason))

    def _note(self, place: int, record: Record, reason: str, uri: str | None = None) -> Note:
        number = _shown(RecordNumber.of(record))
        where = (self._damaged.journal.name, self._offset(place), JOURNAL_RECORD_SIZE)
        kind = RecordType(record.type).name
        if isinstance(record, JournalOpRecord):
            return Note(*where, kind, reason, number)
        queue = self._queues.get(record.queue_key)
        uri = uri or (queue.uri if queue is not None else self._witnesses.uri(record.queue_key))
        guid = None if isinstance(record, QueueOpRecord) else hex_of(record.guid)
        return Note(*where, kind, reason, number, guid, hex_of(record.queue_key), uri)


def _keys(records: NDArray[Any]) -> NDArray[Any]:
    return key_numbers(records, QUEUE_OP_RECORD, "queue_key") if len(records) else np.empty(0, np.uint64)


def _written_size(source: Source, start: int) -> int:
    written = 0
    for at in range(start, source.size, WINDOW_SIZE):
        block = bytes(source.read(at, WINDOW_SIZE)).rstrip(b"\0")
        if block:
            written = at + len(block) - start
    return written


def _shown(number: RecordNumber) -> str:
    return f"{number.primary_lease_id}:{number.sequence_number}"
