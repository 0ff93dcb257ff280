# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Lookup of a payload's checksum in the journal, by the payload's place in DATA.

The record usually follows soon after that of the previous lookup: the next NEAR_RECORDS are examined before a search.
"""

from __future__ import annotations

from typing import Final

from broker.bmq.store.finding import find_row, journal_start
from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import MESSAGE_RECORD, RecordType
from formats.bmq.disk.padding import DWORD

__all__ = ["Checksums"]

NEAR_RECORDS: Final = 32

_MESSAGE: Final = int(RecordType.MESSAGE)
_PLACE_AT, _CHECKSUM_AT = MESSAGE_RECORD.offset("message_offset_dwords"), MESSAGE_RECORD.offset("crc32c")
_place: Final = MESSAGE_RECORD.word("message_offset_dwords").unpack_from
_checksum: Final = MESSAGE_RECORD.word("crc32c").unpack_from


class Checksums:
    """Checksums of the payloads of one partition, in any set of its files."""

    def __init__(self) -> None:
        self._files: PartitionFiles | None = None
        self._start = self._near = 0

    def find(self, files: PartitionFiles, offset: int) -> int | None:
        """Return the checksum of the payload whose DATA record is at `offset`; None if there is no message."""
        journal = files.journal.buffer
        if self._files is not files:
            self._files = files
            self._start = self._near = journal_start(files)
        place, end = offset // DWORD, files.journal_end
        near = self._near
        for at in range(near, min(end, near + NEAR_RECORDS * JOURNAL_RECORD_SIZE), JOURNAL_RECORD_SIZE):
            if journal[at] >> 4 == _MESSAGE and _place(journal, at + _PLACE_AT)[0] == place:
                break
        else:
            row = find_row(files, offset)
            if row is None:
                return None
            at = self._start + row * JOURNAL_RECORD_SIZE
        self._near = at + JOURNAL_RECORD_SIZE
        checksum: int = _checksum(journal, at + _CHECKSUM_AT)[0]
        return checksum
