# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Repair of corrupted payloads at the primary: replicas supply one record each.

The primary requests it like records that it lacks. A replica that does not answer is skipped; the reference's does not
answer during its healing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.core.payloads import UnsoundPayload
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.record_runs import payload_size
from broker.bmq.replication.positions import JOURNAL_START, offset_of, position_at
from broker.bmq.store.finding import find_row
from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import MESSAGE_RECORD, RecordType, scan, select
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import DWORD
from formats.bmq.wire.storage import iter_storage

__all__ = ["RETRY_MS", "Mending", "record_before"]

# Delay before a payload that no replica could supply is requested again.
RETRY_MS: Final = 10_000

# Asks a node for the record at a position, which has another before it; the callback follows the answer.
Ask = Callable[[int, RecordNumber, RecordNumber, Callable[[], None]], None]

_KIND: Final = int(RecordType.MESSAGE)
# The fields that are equal in all copies: queue key, GUID, and the payload's checksum.
_message_record: Final = MESSAGE_RECORD.partial("queue_key", "message_offset_dwords", "guid", "crc32c").unpack_from


class Mending:
    """The corrupted payloads of one partition at its primary.

    `candidates` returns the nodes that have a position; `later` calls a function after a delay, if this node still
    serves the partition.
    """

    def __init__(
        self,
        stored: StoredPartition,
        candidates: Callable[[RecordNumber], Collection[int]],
        ask: Ask,
        later: Callable[[int, Callable[[], None]], None],
    ) -> None:
        self._partition = stored
        self._candidates = candidates
        self._ask = ask
        self._later = later
        self._asked: set[tuple[bytes, bytes]] = set()
        self._is_waiting = False

    def clear(self) -> None:
        self._asked.clear()
        self._is_waiting = False

    def look(self) -> None:
        for unsound in self._partition.payloads.alive():
            if (unsound.queue_key, unsound.message.guid) not in self._asked:
                self._fetch(unsound)

    def _fetch(self, unsound: UnsoundPayload) -> None:
        stored = self._partition
        files, offset = stored.records.place_of(unsound.message)
        row = find_row(files, offset)
        if row is None:
            # The record is corrupted, too, so the one to request is unknown.
            stored.payloads.give_up(unsound)
            return
        position = position_at(files.journal.buffer, JOURNAL_START + row * JOURNAL_RECORD_SIZE)
        candidates = [each for each in self._candidates(position) if each not in unsound.tried]
        key = unsound.queue_key, unsound.message.guid
        if not candidates:
            stored.payloads.give_up(unsound)
            self._ask_again_later()
            return
        node_id = candidates[0]
        unsound.tried.add(node_id)
        self._asked.add(key)
        self._ask(node_id, record_before(files, position), position, lambda: self._asked.discard(key))

    def _ask_again_later(self) -> None:
        if self._is_waiting:
            return
        self._is_waiting = True

        def ask() -> None:
            self._is_waiting = False
            self._partition.payloads.ask_again()

        self._later(RETRY_MS, ask)

    def take(self, data: memoryview, start: int, end: int) -> None:
        """Handle a record from a replica: a matching payload replaces the corrupted one."""
        stored = self._partition
        for message in iter_storage(data, start, end):
            if message.record[0] >> 4 != _KIND:
                continue
            queue_key, _, guid, checksum = _message_record(message.record)
            known = stored.records.stores.get(queue_key, {}).get(guid)
            if known is None or not stored.payloads.is_wanted(queue_key, guid) or known.checksum != checksum:
                continue
            if self._put(known, message.data, checksum):
                stored.payloads.mended(queue_key, guid)

    def _put(self, known: Message, data: memoryview, checksum: int) -> bool:
        files, offset = self._partition.records.place_of(known)
        if len(data) != _room_of(files, offset) or payload_size(data, 0, len(data), checksum) < 0:
            return False
        files.data.buffer[offset : offset + len(data)] = data
        return True


def record_before(files: PartitionFiles, position: RecordNumber) -> RecordNumber:
    """Return the position of the record before the one at `position`, or one number less if there is none here."""
    at = offset_of(files, position)
    if at is None or at == JOURNAL_START:
        return RecordNumber(position.primary_lease_id, position.sequence_number - 1)
    return position_at(files.journal.buffer, at - JOURNAL_RECORD_SIZE)


def _room_of(files: PartitionFiles, offset: int) -> int:
    """Return the length of the DATA record at `offset` by the start of the next: its own header may be corrupted."""
    records = scan(files.journal.buffer, JOURNAL_START, (files.journal_end - JOURNAL_START) // JOURNAL_RECORD_SIZE)
    found, _ = select(records, RecordType.MESSAGE)
    offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype("int64") * DWORD
    behind = offsets[offsets > offset]
    return (int(behind.min()) if behind.size else files.data_end) - offset
