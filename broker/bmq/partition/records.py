# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The records of a partition: the place and number of the next one, and the count that the messages still need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from broker.bmq.core.messages import Message
from broker.bmq.partition.held_records import HeldRecords
from broker.bmq.store.finding import find_message
from broker.bmq.store.partition_files import PartitionFiles
from broker.common.clock import Now
from broker.common.faults import Change, Inconsistent
from formats.bmq.disk.data import HEADER_WORDS_SHIFT, OPTIONS_WORDS_SHIFT, unpack_sizes
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType, SyncPointType
from formats.bmq.disk.journal_packing import (
    pack_confirm,
    pack_deletion,
    pack_message,
    pack_queue_op,
    pack_sync_point,
)
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.padding import DWORD, WORD
from formats.schema import Buffer

__all__ = ["WRITTEN_BYTES_MIN", "PartitionRecords", "RolloverUnderWay"]

# From this size on, a write to the file costs less than one to its mapping, whose pages the kernel clears first.
WRITTEN_BYTES_MIN: Final = 8 << 10

# A lookup of an enumeration's member costs as much as writing a record.
_AUTO: Final = ConfirmReason.AUTO_CONFIRMED
_NO_FLAG: Final = DeletionRecordFlag.NONE


class RolloverUnderWay(Protocol):
    """A rollover that has begun. If it `holds` the partition, nothing is added to the files until it `is_changed`."""

    holds: bool
    is_changed: bool

    @property
    def old(self) -> tuple[PartitionFiles, int]:
        """The old files, and the offset from which messages are still in them."""
        ...

    def removes(self, queue_key: bytes, message: Message) -> None:
        """Note the removal of a message that was alive."""
        ...

    def complete(self) -> None:
        """Do the rest at once. Raises `Full` if there is no disk, or too much is alive."""
        ...

    def give_up(self, reason: str) -> None:
        """Abandon the rollover; the old files stay in use."""
        ...

    def forget_messages(self) -> None:
        """Stop tracking messages: the partition is no longer served here."""
        ...


class PartitionRecords:
    """Writes a partition's records to `files`, under the lease's next numbers. The caller makes room for them.

    `due` counts the confirm and deletion records that the messages stored here will still need. `stores` are the
    messages by queue key, owned by the queues; their offsets in DATA are relative to `offsets_from`, and lower in older
    files after a rollover in slices. `held` are records in memory while nothing may be added to the files.
    """

    # Slots, since every message touches most of them.
    __slots__ = (
        "due",
        "files",
        "held",
        "node_id",
        "now",
        "offsets_from",
        "out",
        "partition_id",
        "primary_lease_id",
        "rolling",
        "sequence_number",
        "stores",
        "synced_at",
    )

    def __init__(self, partition_id: int, node_id: int, files: PartitionFiles, now: Now) -> None:
        self.partition_id = partition_id
        self.node_id = node_id
        self.files = files
        self.now = now
        self.primary_lease_id = 0
        self.sequence_number = 0
        self.synced_at = 0  # sequence number of the last sync point
        self.due = 0
        self.offsets_from = 0
        self.held: HeldRecords | None = None
        self.out: PartitionFiles | HeldRecords = files  # destination of records of confirms and removals
        self.rolling: RolloverUnderWay | None = None
        self.stores: dict[bytes, Mapping[bytes, Message]] = {}

    @property
    def message_count(self) -> int:
        return sum(map(len, self.stores.values()))

    def sync_point(self, kind: SyncPointType = SyncPointType.REGULAR) -> None:
        files = self.files
        self.sequence_number += 1
        pack_sync_point(
            files.journal.buffer,
            files.journal_end,
            self.primary_lease_id,
            self.sequence_number,
            self.now.wall_s,
            kind,
            self.primary_lease_id,
            self.sequence_number,
            self.node_id,
            files.data_end // DWORD,
            files.qlist_end // WORD,
        )
        files.journal_end += JOURNAL_RECORD_SIZE
        self.synced_at = self.sequence_number

    def append(
        self,
        queue_key: bytes,
        messages: Sequence[Message],
        parts: Sequence[Buffer],
        total: int,
        ref_count: int,
        auto_confirms: Sequence[bytes],
    ) -> bool:
        """Write messages that `ref_count` apps want, whose `total` bytes in DATA are `parts`.

        The offset of each is relative to the first before the call. Return False, having written nothing, if the disk
        has no room for a large run. A message comes after the confirms of apps that do not want it, so that recovery
        never assigns it to them.
        """
        files = self.files
        try:
            start = files.data_end
            # DATA first: a record in the journal must find its message there.
            data = b"".join(parts)
            if total < WRITTEN_BYTES_MIN or len(messages) == 1:
                files.data.buffer[start : start + total] = data
            elif not files.data.write(start, data):
                return False
            buffer, at, number = files.journal.buffer, files.journal_end, self.sequence_number
            lease_id, timestamp, offsets_from = self.primary_lease_id, self.now.wall_s, self.offsets_from
            for message in messages:
                guid, offset = message.guid, start + message.offset
                for app_key in auto_confirms:
                    number += 1
                    pack_confirm(buffer, at, lease_id, number, timestamp, _AUTO, queue_key, app_key, guid)
                    at += JOURNAL_RECORD_SIZE
                number += 1
                pack_message(
                    buffer,
                    at,
                    lease_id,
                    number,
                    timestamp,
                    ref_count,
                    message.compression,
                    queue_key,
                    offset // DWORD,
                    guid,
                    message.checksum,
                )
                at += JOURNAL_RECORD_SIZE
                message.offset = offsets_from + offset
            files.data_end = start + total
            files.journal_end = at
            self.sequence_number = number
            self.due += len(messages) * ref_count
        except Exception as error:
            raise Inconsistent(f"writing messages to partition {self.partition_id}", error) from error
        return True

    def settle(
        self,
        queue_key: bytes,
        app_key: bytes,
        messages: Sequence[Message],
        reason: ConfirmReason = ConfirmReason.CONFIRMED,
    ) -> None:
        """Record that an app is done with messages: a confirm, or the deletion of one that no app wants any more.

        Their room was reserved with the messages.
        """
        files, rolling = self.out, self.rolling
        buffer, at, number = files.journal.buffer, files.journal_end, self.sequence_number
        lease_id, timestamp = self.primary_lease_id, self.now.wall_s
        for message in messages:
            number += 1
            if message.outstanding:
                pack_confirm(buffer, at, lease_id, number, timestamp, reason, queue_key, app_key, message.guid)
            else:
                if rolling is not None:
                    rolling.removes(queue_key, message)
                pack_deletion(buffer, at, lease_id, number, timestamp, _NO_FLAG, queue_key, message.guid)
            at += JOURNAL_RECORD_SIZE
        files.journal_end = at
        self.sequence_number = number
        self.due -= len(messages)

    def remove(self, queue_key: bytes, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Record a message's deletion, which replaces the confirms that are due."""
        if self.rolling is not None:
            self.rolling.removes(queue_key, message)
        files = self.out
        self.sequence_number += 1
        pack_deletion(
            files.journal.buffer,
            files.journal_end,
            self.primary_lease_id,
            self.sequence_number,
            self.now.wall_s,
            flag,
            queue_key,
            message.guid,
        )
        files.journal_end += JOURNAL_RECORD_SIZE
        self.due -= message.outstanding.bit_count() or 1

    def append_queue(self, record: bytes, queue_key: bytes, kind: QueueOpType) -> None:
        """Record a new queue, or new apps: first `record` in QLIST, then in the journal."""
        files = self.out
        with Change(f"writing a queue to partition {self.partition_id}"):
            start, end = files.qlist_end, files.qlist_end + len(record)
            files.qlist.buffer[start:end] = record
            self._queue_op(kind, queue_key, NULL_KEY, start, 0, 0)
            files.qlist_end = end

    def append_queue_op(self, kind: QueueOpType, queue_key: bytes, app_key: bytes, first: Message | None) -> None:
        """Record the purge or deletion of a queue or of one of its apps, from the message `first` on."""
        lease_id, number = 0, 0
        if first is not None:
            record = find_message(*self.place_of(first))
            lease_id, number = record.primary_lease_id, record.sequence_number
        with Change(f"writing an operation on a queue to partition {self.partition_id}"):
            self._queue_op(kind, queue_key, app_key, 0, lease_id, number)

    def _queue_op(
        self, kind: QueueOpType, queue_key: bytes, app_key: bytes, qlist_offset: int, lease_id: int, number: int
    ) -> None:
        files = self.out
        self.sequence_number += 1
        pack_queue_op(
            files.journal.buffer,
            files.journal_end,
            self.primary_lease_id,
            self.sequence_number,
            self.now.wall_s,
            kind,
            queue_key,
            app_key,
            queue_uri_record_offset_words=qlist_offset // WORD,
            start_primary_lease_id=lease_id,
            start_sequence_number=number,
        )
        files.journal_end += JOURNAL_RECORD_SIZE

    def read(self, message: Message) -> memoryview:
        """Return a message's properties and payload, in the mapped file: valid until the next step."""
        files, offset = self.place_of(message)
        buffer = files.data.buffer
        lengths, options = unpack_sizes(buffer, offset)
        start = offset + ((lengths >> HEADER_WORDS_SHIFT) + (options >> OPTIONS_WORDS_SHIFT)) * WORD
        return buffer[start : start + message.size]

    def place_of(self, message: Message) -> tuple[PartitionFiles, int]:
        files, offset = self.files, message.offset - self.offsets_from
        if offset < 0 and self.rolling is not None:
            files, offsets_from = self.rolling.old
            offset = message.offset - offsets_from
        return files, offset

    def hold_in(self, held: HeldRecords) -> None:
        """Add records to `held`. Those already in it follow the last one written."""
        self.out = self.held = held
        self.sequence_number = held.number + held.journal_end // JOURNAL_RECORD_SIZE

    def take_held(self) -> bytes:
        """Take the held records back, as if they had not been made."""
        held, self.held = self.held, None
        self.out = self.files
        if held is None:
            return b""
        self.sequence_number = held.number
        return bytes(held.journal.buffer[: held.journal_end])

    def release_held(self, number: int) -> None:
        """Write the held records after the one with that number, the last of the files in use."""
        held, self.held = self.held, None
        self.out = self.files
        if held is not None:
            self.sequence_number = held.append_to(self.files, number)

    @property
    def records_held(self) -> int:
        """Number of records that follow after the rollover."""
        return self.held.journal_end // JOURNAL_RECORD_SIZE if self.held is not None else 0

    @property
    def qlist_held(self) -> int:
        """Bytes of QLIST that follow after the rollover."""
        return self.held.qlist_end if self.held is not None else 0
