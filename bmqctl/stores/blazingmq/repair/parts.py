"""The input and the plan of a repair: a partition's damaged files, and the records to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bmqctl.stores.blazingmq.repair.order import CHUNK_RECORDS, Order
from bmqctl.stores.blazingmq.repair.queues import Entry
from bmqctl.stores.blazingmq.repair.report import Note
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import LAYOUTS, QueueOpRecord, Record
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.stores.source import Source

__all__ = ["WINDOW_SIZE", "Damaged", "Plan", "Window", "iter_places", "unpack_record"]

WINDOW_SIZE = 4 << 20


@dataclass(slots=True)
class Damaged:
    """A partition's files as found, and the offsets of their first records, in bytes.

    `rolled_over` is True if a readable journal header says that a rollover made it.
    """

    partition_id: int
    journal: Source
    data: Source | None
    qlist: Source | None
    first_record_offset: int
    first_payload_offset: int
    rolled_over: bool = False


@dataclass(slots=True)
class Plan:
    """The records to write, identified by their slots in the damaged journal.

    `replaced` has replacements of records, `entries` the QLIST entries of CREATION and ADDITION records, `inserted`
    lost CREATION records with their entries, by the slot that they precede. Numbers have no gaps from
    `first_sync_point` on; if None, a sync point must be added at the end. Nothing before slot `first_damage` changes;
    None without damage.
    """

    order: Order
    left: set[int] = field(default_factory=set)
    replaced: dict[int, Record] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    inserted: dict[int, tuple[QueueOpRecord, Entry]] = field(default_factory=dict)
    first_sync_point: int | None = None
    sync_points_before: int = 0
    last: RecordNumber = field(default_factory=lambda: RecordNumber(0, 0))
    timestamp: int = 0
    primary_node_id: int = 0
    primary_nodes: set[int] = field(default_factory=set)
    first_damage: int | None = None
    outstanding: int = 0
    left_out: list[Note] = field(default_factory=list)
    restored: list[Note] = field(default_factory=list)
    added: list[Note] = field(default_factory=list)


class Window:
    """A `Source` with read-ahead of a few megabytes."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._start = 0
        self._bytes = memoryview(b"")

    def read(self, offset: int, size: int) -> memoryview:
        at = offset - self._start
        if at < 0 or at + size > len(self._bytes):
            self._start, self._bytes = offset, self._source.read(offset, max(size, WINDOW_SIZE))
            at = 0
        return self._bytes[at : at + size]


def iter_places(damaged: Damaged, order: Order) -> Iterator[tuple[int, bytes]]:
    for run in order.runs:
        for start in range(run.start, run.end, CHUNK_RECORDS):
            count = min(CHUNK_RECORDS, run.end - start)
            offset = damaged.first_record_offset + start * JOURNAL_RECORD_SIZE
            block = bytes(damaged.journal.read(offset, count * JOURNAL_RECORD_SIZE))
            for at in range(count):
                yield start + at, block[at * JOURNAL_RECORD_SIZE : (at + 1) * JOURNAL_RECORD_SIZE]


def unpack_record(raw: bytes) -> Record:
    """Unpack a record of one of the five types, without checking its magic."""
    record: Record = LAYOUTS[raw[0] >> 4].unpack(raw)
    return record
