"""Any bytes as a JOURNAL file are refused, or have an extent; of it, records are read, or the damaged one is named.

Records, scanned as a numpy array and decoded one by one, have the same fields, and are written back byte for byte.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType
from formats.bmq.disk.journal import LAYOUTS, Record, RecordType, select
from formats.bmq.stores.recover import JournalExtent, iter_journal, journal_extent, scan_chunks
from tests.fuzz.seeds import small_store

__all__ = ["decode", "seeds", "verify"]


class Read(NamedTuple):
    extent: JournalExtent
    records: list[tuple[int, Record]]


def decode(data: bytes) -> Read:
    return Read(journal_extent(data), list(iter_journal(data)))


def verify(data: bytes, read: Read) -> None:
    extent, records = read
    assert len(records) == extent.record_count
    assert extent.end <= len(data)
    for offset, record in records:
        assert LAYOUTS[record.type].pack(record) == data[offset : offset + JOURNAL_RECORD_SIZE]
    for first, scanned in scan_chunks(data, extent, 16):
        for kind, layout in LAYOUTS.items():
            found, indexes = select(scanned, RecordType(kind))
            for field in layout.cls._fields:
                column = layout.column(found, field).tolist()
                assert column == [getattr(records[first + index][1], field) for index in indexes.tolist()]


def seeds() -> list[bytes]:
    """A journal, one with more of it, and one that is preallocated."""
    journal = small_store()[FileType.JOURNAL]
    return [journal, small_store(8, 5)[FileType.JOURNAL], journal + bytes(4 * JOURNAL_RECORD_SIZE), journal[:200]]
