# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The index of a replica's copy: the messages by queue and GUID, and whether their payloads are sound."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from broker.bmq.core.alarms import alarm
from broker.bmq.core.messages import Content
from broker.bmq.core.thrown import throw_away
from broker.bmq.core.work import Work
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.copy_records import CopyRecords
from broker.bmq.replication.copying.places import MessagePlaces
from broker.bmq.store.checksums import Checksums
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import Recovered
from formats.bmq.disk.data import DataHeaderFlags, parse_data_record
from formats.errors import FormatError

__all__ = ["CopyIndex"]

log: Final = logging.getLogger("broker.partition")


class CopyIndex:
    """The messages of one copy, whose `places` are those in its current files.

    `is_rotten` is True if the files are corrupted, as when a payload does not match its checksum.
    """

    __slots__ = ("_before", "_checksums", "_records", "_stored", "is_rotten", "places")

    def __init__(self, stored: StoredPartition, records: CopyRecords, recovered: Recovered | None) -> None:
        self._stored = stored
        self._records = records
        self._before: MessagePlaces | None = None  # of the partition's files, while it is fetched again
        self._checksums = Checksums()
        self.places = MessagePlaces(stored.files)
        self.is_rotten = False
        if recovered is not None:
            self.places.add_recovered(recovered.messages)
        else:
            self.rebuild()

    def rebuild(self) -> None:
        self.let_go()
        self.places = MessagePlaces(self._records.files)
        work = self._stored.work
        if work is not None:
            work.start(self.places.find_all(work, self.note_rot))
        else:
            at_once = Work(self._stored.now, 1 << 40)
            at_once.complete(self.places.find_all(at_once, self.note_rot))

    def note_rot(self, error: FormatError) -> None:
        self.is_rotten = True
        alarm(log, "STORAGE", f"Partition [{self._stored.partition_id}]: {self._records.files.journal.name}: {error}")

    def start_over(self, files: PartitionFiles) -> None:
        """Begin an index of empty files; the one of the partition's files is kept."""
        self.places, self._before = MessagePlaces(files), self.places

    def complete(self) -> None:
        assert self._before is not None
        self.throw_away(self._before.give_up())
        self._before = None

    def go_back(self) -> None:
        self.let_go()
        assert self._before is not None
        self.places, self._before = self._before, None

    def let_go(self) -> None:
        """Drop the index: the partition is served from here and its queues locate their messages."""
        self.throw_away(self.places.give_up())

    def throw_away(self, chunks: Sequence[dict[bytes, Any]]) -> None:
        if self._stored.work is not None and chunks:
            self._stored.work.start(throw_away(self._stored.work, [*chunks]))

    def read(self, queue_key: bytes, guid: bytes) -> Content | None:
        """Read a message as posted; None if it is missing or corrupted. Views are valid until the next step."""
        place = self.places.find(queue_key, guid)
        if place is None:
            return None
        files, offset, compression = place
        buffer = files.data.buffer
        try:
            found = parse_data_record(buffer, offset)
            checksum = found.crc32c(buffer)
        except FormatError:
            self.is_rotten = True
            return None
        if self._checksums.find(files, offset) not in (checksum, None):
            self.is_rotten = True
            return None
        header = found.header
        return Content(
            found.app_data(buffer),
            checksum,
            compression,
            bool(header.flags & DataHeaderFlags.MESSAGE_PROPERTIES),
            header.schema_id,
            found.options(buffer),
        )
