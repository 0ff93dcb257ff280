"""What a repair works on and towards: the damaged files of a partition, and the plan for what is written instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bmqctl.journal.repair_order import CHUNK_RECORDS, Number, Order
from bmqctl.journal.repair_queues import Entry
from bmqctl.journal.repair_report import Note
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import LAYOUTS, QueueOpRecord, Record
from formats.disk.source import Source

__all__ = ["WINDOW_SIZE", "Damaged", "Plan", "Window", "iter_places", "unpack_record"]

WINDOW_SIZE = 4 << 20


@dataclass(slots=True)
class Damaged:
    """The files of one partition as they were found, and where their records begin, in bytes.

    `rolled_over` tells whether the journal's header, if it can be read, says that a rollover made it.
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
    """What to write. Records are known by their place in the damaged journal.

    `replaced` holds what to write instead of a record, `entries` the QLIST entries of CREATION and ADDITION records,
    `inserted` CREATION records that were lost, with their entries, by the place that they go before. From
    `first_sync_point` on numbers have no gaps: it is None if a sync point must be added at the end. Before place
    `first_damage` all is as it was written; it is None if everything is.
    """

    order: Order
    left: set[int] = field(default_factory=set)
    replaced: dict[int, Record] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    inserted: dict[int, tuple[QueueOpRecord, Entry]] = field(default_factory=dict)
    first_sync_point: int | None = None
    sync_points_before: int = 0
    last: Number = (0, 0)
    timestamp: int = 0
    primary_node_id: int = 0
    primary_nodes: set[int] = field(default_factory=set)
    first_damage: int | None = None
    outstanding: int = 0
    left_out: list[Note] = field(default_factory=list)
    restored: list[Note] = field(default_factory=list)
    added: list[Note] = field(default_factory=list)


class Window:
    """A `Source` read a few megabytes ahead."""

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
    """(place, its bytes) in the order of the numbers."""
    for run in order.runs:
        for start in range(run.start, run.end, CHUNK_RECORDS):
            count = min(CHUNK_RECORDS, run.end - start)
            offset = damaged.first_record_offset + start * JOURNAL_RECORD_SIZE
            block = bytes(damaged.journal.read(offset, count * JOURNAL_RECORD_SIZE))
            for at in range(count):
                yield start + at, block[at * JOURNAL_RECORD_SIZE : (at + 1) * JOURNAL_RECORD_SIZE]


def unpack_record(raw: bytes) -> Record:
    """A record of one of the five types, whatever its magic."""
    record: Record = LAYOUTS[raw[0] >> 4].unpack(raw)
    return record
