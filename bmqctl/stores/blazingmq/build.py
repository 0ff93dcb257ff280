"""Builds a store from JSON lines, as printed by `bmqctl journal dump` or written by hand.

A line is one record. Values that follow from its position (offsets, checksums) are computed. Omitted values have
defaults: sequence numbers count up, times and lease ids stay, keys and GUIDs are derived. Nothing is random and the
clock is not read, so that the same lines produce the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO

from pydantic import ValidationError

from bmqctl.stores.blazingmq.lines import (
    App,
    ConfirmLine,
    DeletionLine,
    JournalOpLine,
    LedgerLine,
    Line,
    MessageLine,
    PartitionLine,
    QueueOpLine,
    parse_line,
)
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages_cluster import (
    AppIdInfo,
    ClusterMessage,
    LeaderAdvisory,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryInfo,
    QueueInfo,
)
from formats.bmq.disk.data import DataHeaderFlags, data_record_size, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, file_name, initial_bytes
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType, SyncPointType
from formats.bmq.disk.journal_packing import pack_confirm, pack_deletion, pack_message, pack_queue_op, pack_sync_point
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY, derive_key
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, initial_ledger_bytes, ledger_file_name
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.guid import CLIENT_ID_SIZE, GuidGenerator
from formats.bmq.uri import QueueUri, parse_uri
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["BadLine", "StoreBuilder", "build_store"]

FILE_TYPES = (FileType.DATA, FileType.JOURNAL, FileType.QLIST)
GUID_STEP_NS = 1000
LEDGER_TERM = 1


class BadLine(Exception):
    """A line that does not make a record; the text is the reason."""


@dataclass(slots=True)
class _Queue:
    """A queue as described so far; `apps` maps ids to keys."""

    uri: str
    key: bytes
    apps: dict[str, bytes]

    def app_key(self, app_id: str) -> bytes:
        if app_id not in self.apps:
            raise BadLine(f"app_id: queue {self.uri} has {', '.join(self.apps) or 'no apps'}, not {app_id!r}")
        return self.apps[app_id]


@dataclass(slots=True)
class _Partition:
    """The open files of a partition, and the numbers of its next record."""

    partition_id: int
    files: dict[FileType, IO[bytes]]
    primary_lease_id: int = 1
    sequence_number: int = 0
    timestamp: int = 0
    primary_node_id: int = 0
    records: int = 0
    messages: int = 0
    queues: dict[bytes, _Queue] = field(default_factory=dict)
    by_uri: dict[str, _Queue] = field(default_factory=dict)

    def number(self, line: PartitionLine | None) -> tuple[int, int, int]:
        """(lease id, sequence number, timestamp) of the next record."""
        lease = self.primary_lease_id if line is None or line.primary_lease_id is None else line.primary_lease_id
        if lease != self.primary_lease_id:
            self.sequence_number = 0
        self.primary_lease_id = lease
        given = None if line is None else line.sequence_number
        self.sequence_number = self.sequence_number + 1 if given is None else given
        if line is not None and line.timestamp is not None:
            self.timestamp = line.timestamp
        return lease, self.sequence_number, self.timestamp

    def tell(self, file_type: FileType) -> int:
        return self.files[file_type].tell()

    def write(self, record: Buffer) -> None:
        self.files[FileType.JOURNAL].write(record)
        self.records += 1


class StoreBuilder:
    """Writes lines to the files of a store as they come; `close` writes the ledger, unless lines did."""

    def __init__(self, directory: Path, start_s: int) -> None:
        """`start_s` is the time of the first record and in the files' names, in seconds since the epoch."""
        self.directory = directory
        self.partitions: dict[int, _Partition] = {}
        self._start_s = start_s
        self._created = datetime.fromtimestamp(start_s, UTC)
        self._guids = GuidGenerator(b"build".ljust(CLIENT_ID_SIZE, b"\0"), 0)
        self._guid_tick = 0
        self._taken: set[bytes] = set()
        self._ledger: IO[bytes] | None = None

    def __enter__(self) -> StoreBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._derive_ledger()
        for partition in self.partitions.values():
            for file in partition.files.values():
                file.close()
        if self._ledger is not None:
            self._ledger.close()

    def add(self, line: Line) -> None:
        """Write one line. Raises BadLine if it contradicts the lines before it."""
        if isinstance(line, LedgerLine):
            self._add_ledger(line)
            return
        partition = self._partition(line)
        match line:
            case MessageLine():
                self._add_message(partition, line)
            case ConfirmLine():
                queue = self._queue(partition, line)
                app_key = _given(line.app_key) or queue.app_key(line.app_id or DEFAULT_APP_ID)
                record = bytearray(JOURNAL_RECORD_SIZE)
                reason = ConfirmReason[line.reason] if isinstance(line.reason, str) else line.reason
                pack_confirm(record, 0, *partition.number(line), reason, queue.key, app_key, bytes.fromhex(line.guid))
                partition.write(record)
            case DeletionLine():
                queue = self._queue(partition, line)
                record = bytearray(JOURNAL_RECORD_SIZE)
                flag = line.deletion_flag
                flag = DeletionRecordFlag[flag] if isinstance(flag, str) else flag
                pack_deletion(record, 0, *partition.number(line), flag, queue.key, bytes.fromhex(line.guid))
                partition.write(record)
            case QueueOpLine():
                self._add_queue_op(partition, line)
            case JournalOpLine():
                self._add_sync_point(partition, line)

    def _partition(self, line: PartitionLine) -> _Partition:
        partition = self.partitions.get(line.partition_id)
        if partition is None:
            files: dict[FileType, IO[bytes]] = {}
            for kind in FILE_TYPES:
                files[kind] = (self.directory / file_name(line.partition_id, self._created, kind)).open("xb")
                files[kind].write(initial_bytes(kind, line.partition_id))
            partition = self.partitions[line.partition_id] = _Partition(line.partition_id, files)
            partition.timestamp = self._start_s if line.timestamp is None else line.timestamp
            if not isinstance(line, JournalOpLine):
                # Brokers do so when they become primary; without one, readers assume an unfinished rollover.
                if line.primary_lease_id is not None:
                    partition.primary_lease_id = line.primary_lease_id
                self._add_sync_point(partition, None)
        return partition

    def _queue(self, partition: _Partition, line: MessageLine | ConfirmLine | DeletionLine | QueueOpLine) -> _Queue:
        """Return the queue that a line names by key or URI; create a missing one with the default app."""
        if line.queue_key is not None:
            queue = partition.queues.get(bytes.fromhex(line.queue_key))
            if queue is not None and line.queue_uri not in (None, queue.uri):
                raise BadLine(f"queue_uri: key {line.queue_key} is that of {queue.uri}")
        else:
            queue = None if line.queue_uri is None else partition.by_uri.get(line.queue_uri)
        if queue is not None:
            return queue
        if line.queue_uri is None:
            raise BadLine("queue_uri: required, since no queue with this key has been created")
        return self._create_queue(partition, QueueOpLine(queue_uri=line.queue_uri, queue_key=line.queue_key), None)

    def _create_queue(self, partition: _Partition, line: QueueOpLine, numbers: PartitionLine | None) -> _Queue:
        if line.queue_uri is None:
            raise BadLine("queue_uri: required to create a queue")
        try:
            uri = parse_uri(line.queue_uri)
        except FormatError as error:
            raise BadLine(f"queue_uri: {error.reason}") from None
        queue = partition.by_uri.get(line.queue_uri)
        if queue is None or line.queue_op_type == "CREATION":
            key = _given(line.queue_key) or self._derive_key(line.queue_uri)
            self._taken.add(key)
            queue = _Queue(line.queue_uri, key, {})
        if line.queue_op_type == "ADDITION" and not line.apps:
            raise BadLine("apps: required for an ADDITION")
        apps = [self._app(app, uri) for app in line.apps or [DEFAULT_APP_ID]]
        queue.apps.update(apps)
        partition.queues[queue.key] = partition.by_uri[queue.uri] = queue
        qlist = partition.files[FileType.QLIST]
        words = qlist.tell() // WORD
        qlist.write(build_queue_record(queue.uri, queue.key, apps))
        record = bytearray(JOURNAL_RECORD_SIZE)
        kind = QueueOpType[line.queue_op_type]
        pack_queue_op(record, 0, *partition.number(numbers), kind, queue.key, queue_uri_record_offset_words=words)
        partition.write(record)
        return queue

    def _app(self, app: str | App, uri: QueueUri) -> tuple[str, bytes]:
        app_id, key = (app, None) if isinstance(app, str) else (app.app_id, _given(app.app_key))
        if key is None:
            key = DEFAULT_APP_KEY if app_id == DEFAULT_APP_ID else self._derive_key(f"{uri}?id={app_id}")
        return app_id, key

    def _derive_key(self, name: str) -> bytes:
        key = derive_key(name, 0, self._taken)
        self._taken.add(key)
        return key

    def _add_queue_op(self, partition: _Partition, line: QueueOpLine) -> None:
        kind = QueueOpType[line.queue_op_type]
        if kind in (QueueOpType.CREATION, QueueOpType.ADDITION):
            self._create_queue(partition, line, line)
            return
        queue = self._queue(partition, line)
        app_key = _given(line.app_key) or (queue.app_key(line.app_id) if line.app_id is not None else NULL_KEY)
        record = bytearray(JOURNAL_RECORD_SIZE)
        pack_queue_op(
            record,
            0,
            *partition.number(line),
            kind,
            queue.key,
            app_key,
            0,
            line.start_primary_lease_id,
            line.start_sequence_number,
        )
        partition.write(record)
        if kind is QueueOpType.DELETION and app_key == NULL_KEY:
            del partition.queues[queue.key], partition.by_uri[queue.uri]

    def _add_message(self, partition: _Partition, line: MessageLine) -> None:
        queue = self._queue(partition, line)
        content = line.content()
        if line.guid is None:
            self._guid_tick += GUID_STEP_NS
            guid = self._guids.make(self._guid_tick)
        else:
            guid = bytes.fromhex(line.guid)
        size = data_record_size(0, len(content.data))
        stored = bytearray(size)
        flags = DataHeaderFlags.MESSAGE_PROPERTIES if content.has_properties else 0
        write_data_record(stored, 0, content.data, b"", flags, content.schema_id)
        crc = content.crc32c()
        if line.crc32c not in (None, crc):
            raise BadLine(f"crc32c: {line.crc32c}, but the message's data has {crc}; omit it if the data was changed")
        data = partition.files[FileType.DATA]
        record = bytearray(JOURNAL_RECORD_SIZE)
        pack_message(
            record,
            0,
            *partition.number(line),
            len(queue.apps) if line.ref_count is None else line.ref_count,
            content.compression,
            queue.key,
            data.tell() // DWORD,
            guid,
            crc,
        )
        data.write(stored)
        partition.write(record)
        partition.messages += 1

    def _add_sync_point(self, partition: _Partition, line: JournalOpLine | None) -> None:
        lease, number, timestamp = partition.number(line)
        line = line or JournalOpLine()
        if line.primary_node_id is not None:
            partition.primary_node_id = line.primary_node_id
        of_lease, of_number = line.sync_point_primary_lease_id, line.sync_point_sequence_number
        record = bytearray(JOURNAL_RECORD_SIZE)
        pack_sync_point(
            record,
            0,
            lease,
            number,
            timestamp,
            SyncPointType[line.sync_point_type],
            lease if of_lease is None else of_lease,
            number if of_number is None else of_number,
            partition.primary_node_id,
            partition.tell(FileType.DATA) // DWORD,
            partition.tell(FileType.QLIST) // WORD,
        )
        partition.write(record)

    def _open_ledger(self) -> IO[bytes]:
        if self._ledger is None:
            log_id = derive_key("ledger", self._start_s, ())
            self._ledger = (self.directory / ledger_file_name(self._created, log_id)).open("xb")
            self._ledger.write(initial_ledger_bytes(log_id))
        return self._ledger

    def _add_ledger(self, line: LedgerLine) -> None:
        try:
            message = jsonc.decode(ClusterMessage, json.dumps(line.message).encode())
        except FormatError as error:
            raise BadLine(f"message: {error.path}: {error.reason}") from None
        timestamp = self._start_s if line.timestamp is None else line.timestamp
        kind = LedgerRecordType[line.type]
        self._write_ledger(kind, line.elector_term, line.sequence_number, timestamp, message)

    def _derive_ledger(self) -> None:
        if self._ledger is not None or not self.partitions:
            return
        last = max(partition.timestamp for partition in self.partitions.values())
        advised = LeaderMessageSequence(elector_term=LEDGER_TERM, sequence_number=1)
        committing = LeaderMessageSequence(elector_term=LEDGER_TERM, sequence_number=2)
        advisory = LeaderAdvisory(
            sequence_number=advised,
            partitions=tuple(
                PartitionPrimaryInfo(
                    partition_id=each.partition_id,
                    primary_node_id=each.primary_node_id,
                    primary_lease_id=each.primary_lease_id,
                )
                for each in self.partitions.values()
            ),
            queues=tuple(
                QueueInfo(
                    uri=queue.uri,
                    key=queue.key,
                    partition_id=each.partition_id,
                    app_ids=tuple(AppIdInfo(app_id=app_id, app_key=key) for app_id, key in queue.apps.items()),
                )
                for each in self.partitions.values()
                for queue in each.by_uri.values()
            ),
        )
        commit = LeaderAdvisoryCommit(sequence_number=committing, sequence_number_committed=advised)
        self._write_ledger(LedgerRecordType.SNAPSHOT, LEDGER_TERM, 1, last, ClusterMessage(choice=advisory))
        self._write_ledger(LedgerRecordType.COMMIT, LEDGER_TERM, 2, last, ClusterMessage(choice=commit))

    def _write_ledger(
        self, kind: LedgerRecordType, term: int, number: int, timestamp: int, message: ClusterMessage
    ) -> None:
        self._open_ledger().write(build_ledger_record(kind, term, number, timestamp, ber.encode(message)))


def build_store(lines: Iterable[str], directory: Path, start_s: int) -> StoreBuilder:
    """Write the store that `lines` describe to `directory`. Raises BadLine, with its number, at the first bad line."""
    with StoreBuilder(directory, start_s) as builder:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                builder.add(parse_line(text))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"] if not str(part).isupper())
                raise BadLine(f"line {number}: {where + ': ' if where else ''}{first['msg']}") from None
            except (BadLine, ValueError) as error:
                raise BadLine(f"line {number}: {error}") from None
    return builder


def _given(key: str | None) -> bytes | None:
    return None if key is None else bytes.fromhex(key)
