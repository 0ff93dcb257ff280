"""A replica's copy of a shard: it writes what the primary sent to the same places, and knows where each message is.

Records that arrive must fit where the journal, DATA and QLIST end; what does not fit is refused before anything of it
is written (source: mqbs::FileStore::processStorageEvent, mqbs::FileStoreUtil::writeMessageRecordImpl).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from broker.cluster.positions import JOURNAL_START, NOWHERE, Position, last_position, offset_behind, position_at
from broker.core.messages import Content
from broker.core.shard import Shard
from broker.store.partition_files import PartitionFiles
from broker.store.recovery import Recovered, RecoveredMessage, recover
from broker.store.rollover import Rollover
from formats.codes import StorageMessageType
from formats.disk.data import DATA_HEADER, DataHeaderFlags, parse_data_record
from formats.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.disk.journal import RECORD_MAGIC, QueueOpType, RecordType, SyncPointType
from formats.disk.keys import NULL_KEY
from formats.disk.padding import DWORD, WORD
from formats.disk.qlist import parse_queue_record
from formats.errors import FormatError
from formats.wire.storage import StorageMessage

__all__ = ["Copy", "OutOfStep"]

# What the journal's records are when they come over a link.
_RECORD_TYPE = {
    StorageMessageType.DATA: RecordType.MESSAGE,
    StorageMessageType.QLIST: RecordType.QUEUE_OP,
    StorageMessageType.QUEUE_OP: RecordType.QUEUE_OP,
    StorageMessageType.CONFIRM: RecordType.CONFIRM,
    StorageMessageType.DELETION: RecordType.DELETION,
    StorageMessageType.JOURNAL_OP: RecordType.JOURNAL_OP,
}
_MAKING = (QueueOpType.CREATION, QueueOpType.ADDITION)

_u32 = struct.Struct(">I").unpack_from

# Fields of records, in bytes (see `formats.disk.journal`).
_MESSAGE_KEY, _MESSAGE_OFFSET, _MESSAGE_GUID = slice(22, 27), 32, slice(36, 52)
_DELETION_KEY, _DELETION_GUID = slice(23, 28), slice(28, 44)
_QUEUE_OP_KEY, _QUEUE_OP_APP_KEY, _QUEUE_OP_TYPE, _QUEUE_OP_OFFSET = slice(22, 27), slice(27, 32), 32, 36
_SYNC_POINT_TYPE = 23
_MAGIC = 56
_COMPRESSION_BITS = 3


class OutOfStep(Exception):
    """What arrived does not continue what is here, or there is no room for it."""


class Place:
    """Where a message alive has its payload: a rollover moves it."""

    __slots__ = ("message", "offset")

    def __init__(self, message: RecoveredMessage) -> None:
        self.message = message
        self.offset = message.offset


# The primary has removed a message, or, without a GUID, all of a queue's: its key.
Removed = Callable[[bytes, bytes | None], None]


class Copy:
    """The files that a replica writes, which are those of its shard unless it receives them anew.

    While it receives a shard anew, `files` is a second set: its journal gets its header last, so that a node that dies
    before goes on with the old one. `removed` is told what a record removes.
    """

    def __init__(self, shard: Shard, recovered: Recovered) -> None:
        self.shard = shard
        self.removed: Removed = lambda queue_key, guid: None
        self.files = shard.files
        self.position = last_position(shard.files)
        self._places: dict[bytes, dict[bytes, int]] = {}  # by queue key and GUID: DATA offset and compression
        self._rolling: tuple[Rollover, PartitionFiles] | None = None  # until the new files' first sync point
        self._places_alive: list[Place] = []
        self._gone_before: dict[bytes, bytes] = {}  # what was removed before the last rollover
        self._index((message, message.offset) for message in recovered.messages)

    def _index(self, messages: Iterable[tuple[RecoveredMessage, int]]) -> None:
        self._places = {}
        for message, offset in messages:
            places = self._places.setdefault(message.queue_key, {})
            places[message.guid] = offset << _COMPRESSION_BITS | message.compression

    @property
    def is_anew(self) -> bool:
        return self.files is not self.shard.files

    # -- writing

    def write(self, message: StorageMessage) -> None:
        """Add one record, and what it points to. `OutOfStep`, nothing written, if it does not fit."""
        files = self.files
        record = message.record
        at = files.journal_end
        if message.journal_offset_words * WORD != at:
            raise OutOfStep(f"a record for {message.journal_offset_words * WORD}, the journal is at {at}")
        kind = record[0] >> 4
        if _RECORD_TYPE.get(message.message_type) != kind or _u32(record, _MAGIC)[0] != RECORD_MAGIC:  # type: ignore[call-overload]
            raise OutOfStep(f"a record of type {kind} in a message of type {message.message_type}, or a wrong magic")
        position = position_at(record)
        if position <= self.position or not position.number:
            raise OutOfStep(f"{position} after {self.position}")
        end = at + JOURNAL_RECORD_SIZE
        if end > files.journal.granted and not files.journal.reserve(end):
            raise OutOfStep(f"no room for a record in {files.journal.name}")
        if kind == RecordType.MESSAGE:
            self._write_data(record, message.data)
        elif kind == RecordType.QUEUE_OP:
            self._write_queue(record, message.data)
        elif kind == RecordType.DELETION:
            key, guid = bytes(record[_DELETION_KEY]), bytes(record[_DELETION_GUID])
            places = self._places.get(key)
            if places is not None:
                places.pop(guid, None)
            self.removed(key, guid)
        files.journal.buffer[at:end] = record
        files.journal_end = end
        self.position = position
        if kind == RecordType.JOURNAL_OP:
            self._on_sync_point(record[_SYNC_POINT_TYPE], at)

    def _write_data(self, record: memoryview, data: memoryview) -> None:
        files = self.files
        start = files.data_end
        offset = _u32(record, _MESSAGE_OFFSET)[0] * DWORD
        if offset != start:
            raise OutOfStep(f"a message for {offset}, DATA is at {start}")
        end = start + len(data)
        if len(data) < DATA_HEADER.size or _data_size(data) != len(data):
            raise OutOfStep(f"{len(data)} bytes are no DATA record")
        if end > files.data.granted and not files.data.reserve(end):
            raise OutOfStep(f"no room for {len(data)} bytes in {files.data.name}")
        files.data.buffer[start:end] = data
        files.data_end = end
        places = self._places.setdefault(bytes(record[_MESSAGE_KEY]), {})
        places[bytes(record[_MESSAGE_GUID])] = start << _COMPRESSION_BITS | record[21] & 7

    def _write_queue(self, record: memoryview, data: memoryview) -> None:
        files = self.files
        kind = _u32(record, _QUEUE_OP_TYPE)[0]
        if kind in _MAKING:
            start = files.qlist_end
            offset = _u32(record, _QUEUE_OP_OFFSET)[0] * WORD
            end = start + len(data)
            try:
                fits = offset == start and parse_queue_record(data, 0).end == len(data)
            except FormatError as error:
                raise OutOfStep(f"no QLIST record: {error}") from error
            if not fits:
                raise OutOfStep(f"a queue of {len(data)} bytes for {offset}, QLIST is at {start}")
            if not files.qlist.reserve(end):
                raise OutOfStep(f"no room for {len(data)} bytes in {files.qlist.name}")
            files.qlist.buffer[start:end] = data
            files.qlist_end = end
        elif kind in (QueueOpType.PURGE, QueueOpType.DELETION) and bytes(record[_QUEUE_OP_APP_KEY]) == NULL_KEY:
            key = bytes(record[_QUEUE_OP_KEY])
            self._places.pop(key, None)
            self.removed(key, None)

    def end_event(self) -> None:
        """The records of an event are written: the shard is where they end."""
        if not self.is_anew:
            self.shard.primary_lease_id, self.shard.sequence_number = self.position

    # -- rollover, together with the primary

    def _on_sync_point(self, kind: int, offset: int) -> None:
        if self._rolling is not None:
            plan, old = self._rolling
            self._rolling = None
            plan.finish(self.files, offset)
            self._index((place.message, place.offset) for place in self._places_alive)
            self._places_alive = []
            old.retire()
        elif kind == SyncPointType.ROLLOVER and not self.is_anew:
            self._roll_over()

    def _roll_over(self) -> None:
        """The primary goes on in new files, and what it carried over is the same here."""
        old = self.files
        shard = self.shard
        recovered = recover(old)
        self._gone_before = recovered.gone
        self._places_alive = [Place(message) for message in recovered.messages]
        alive = {place.message.queue_key + place.message.guid: place for place in self._places_alive}
        plan = Rollover(old, alive, set(recovered.queues))
        timestamp = shard.make_timestamp(f"bmq_{shard.partition_id}.")
        fresh = plan.copy(shard.partition_id, timestamp, shard.limits, records_due=1)
        if fresh is None:
            raise OutOfStep(f"no disk for what follows {old.journal.name}")
        shard.files = self.files = fresh
        self._rolling = (plan, old)

    def settle(self) -> None:
        """No more comes from this primary: half a rollover is undone."""
        if self._rolling is not None:
            _, old = self._rolling
            self._rolling = None
            self.files.remove()
            self.shard.files = self.files = old
        elif self.is_anew:
            self.files.remove()
            self.files = self.shard.files
        self.position = last_position(self.files)
        self.end_event()

    # -- healing

    def cut(self, position: Position) -> bool:
        """Drop the records behind `position`, or behind the last that is not; False if they all would have to go."""
        files = self.files
        behind = None
        at = files.journal_end
        while at > JOURNAL_START:
            here = position_at(files.journal.buffer, at - JOURNAL_RECORD_SIZE)
            if here <= position:
                behind = offset_behind(files, here)
                break
            at -= JOURNAL_RECORD_SIZE
        if behind is None:
            return False
        end = files.journal_end
        files.journal.buffer[behind:end] = bytes(end - behind)
        recovered = recover(files)
        self.position = last_position(files)
        self._index((message, message.offset) for message in recovered.messages)
        self.end_event()
        return True

    def begin_anew(self) -> None:
        """Receive the whole shard into new files. `OutOfStep` when there is no disk for them."""
        shard = self.shard
        timestamp = shard.make_timestamp(f"bmq_{shard.partition_id}.")
        fresh = PartitionFiles.create(shard.files.directory, shard.partition_id, timestamp, shard.limits)
        if fresh is None:
            raise OutOfStep("no disk for new files")
        fresh.journal.buffer[:JOURNAL_START] = bytes(JOURNAL_START)
        self.files = fresh
        self.position = NOWHERE
        self._places = {}

    def complete(self, sync_point: Position) -> None:
        """All of the shard is there; `sync_point` is the first behind the primary's last rollover."""
        if not self.is_anew:
            return
        files, old = self.files, self.shard.files
        head = initial_bytes(FileType.JOURNAL, self.shard.partition_id)
        offset = _find(files, sync_point)
        files.journal.buffer[:JOURNAL_START] = head
        header = JOURNAL_FILE_HEADER.unpack(files.journal.buffer, FILE_HEADER.size)
        header = header._replace(first_sync_point_after_rollover_offset_words=offset // WORD)
        JOURNAL_FILE_HEADER.pack_into(files.journal.buffer, FILE_HEADER.size, header)
        self.shard.files = files
        self.end_event()
        if old.journal_end > JOURNAL_START:
            old.retire()
        else:
            old.remove()

    # -- reading

    def recover(self) -> Recovered:
        """All that this node knows, which serves the shard from now on; the queues then know where messages are."""
        recovered = recover(self.files)
        for key, guids in self._gone_before.items():
            recovered.gone[key] = guids + recovered.gone.get(key, b"")
        self._places, self._gone_before = {}, {}
        return recovered

    def read(self, queue_key: bytes, guid: bytes) -> Content | None:
        """A message as its producer sent it; None if it is not here. Views are valid until the next step."""
        places = self._places.get(queue_key)
        place = places.get(guid) if places else None
        if place is None:
            return None
        # A rollover that is not finished has left the payload where it was.
        files = self._rolling[1] if self._rolling else self.files
        buffer = files.data.buffer
        found = parse_data_record(buffer, place >> _COMPRESSION_BITS)
        header = found.header
        return Content(
            found.app_data(buffer),
            found.crc32c(buffer),
            place & (1 << _COMPRESSION_BITS) - 1,
            bool(header.flags & DataHeaderFlags.MESSAGE_PROPERTIES),
            header.schema_id,
            found.options(buffer),
        )


def _data_size(data: memoryview) -> int:
    words: int = _u32(data, 0)[0] & (1 << 29) - 1
    return words * WORD


def _find(files: PartitionFiles, position: Position) -> int:
    if position == NOWHERE:
        return 0
    for at in range(JOURNAL_START, files.journal_end, JOURNAL_RECORD_SIZE):
        if position_at(files.journal.buffer, at) == position:
            return at
    raise OutOfStep(f"the primary's sync point {position} is not among what it sent")
