"""What the records of a journal refer to by key: queues, their apps, and the purges that emptied them.

These are few, so that the driver reads them and every executor gets them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bmqctl.pipeline.stores import Partition, map_file
from formats.control import ber
from formats.control.messages_cluster import (
    ClusterMessage,
    LeaderAdvisory,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueInfoUpdate,
    QueueUpdateAdvisory,
)
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import QUEUE_OP_RECORD, RECORD_MAGIC, QueueOpRecord, QueueOpType, RecordType, select
from formats.disk.keys import DEFAULT_APP_ID, DEFAULT_APP_KEY, NULL_KEY
from formats.disk.ledger import LedgerRecordType
from formats.disk.qlist import parse_queue_record
from formats.disk.recover import iter_ledger, iter_qlist, scan_chunks
from formats.errors import FormatError
from formats.padding import WORD
from formats.schema import Buffer

__all__ = ["App", "Purge", "Queue", "hex_of", "load_queues"]

ALWAYS = -1


class App(NamedTuple):
    """An app of a queue, from the journal offset `since` on and before `until` (None: to the end)."""

    app_key: str
    app_id: str
    since: int
    until: int | None


class Purge(NamedTuple):
    """A purge of one app, or (`app_key` None) of the queue, of the messages before journal offset `offset`.

    For one app it begins with the message that `start_*` name.
    """

    offset: int
    timestamp: int
    app_key: str | None
    start_primary_lease_id: int
    start_sequence_number: int


class Queue(NamedTuple):
    """A queue of one partition; keys are upper-case hex, `uri` is None if neither QLIST nor ledger names it."""

    partition_id: int
    queue_key: str
    uri: str | None
    apps: tuple[App, ...]
    purges: tuple[Purge, ...]


class _Draft:
    """A queue while its records are read."""

    def __init__(self) -> None:
        self.uri: str | None = None
        self.since: dict[bytes, tuple[str, int]] = {}
        self.until: dict[bytes, int] = {}
        self.purges: list[Purge] = []

    def add(self, app_key: bytes, app_id: str, offset: int) -> None:
        if app_key not in self.since:
            self.since[app_key] = (app_id, offset)

    def complete(self, other: _Draft) -> None:
        """Take from `other` what is not known yet."""
        self.uri = self.uri or other.uri
        for app_key, (app_id, offset) in other.since.items():
            self.add(app_key, app_id, offset)

    def finish(self, partition_id: int, queue_key: bytes) -> Queue:
        if not self.since:
            self.add(DEFAULT_APP_KEY, DEFAULT_APP_ID, ALWAYS)
        apps = (App(hex_of(key), name, since, self.until.get(key)) for key, (name, since) in self.since.items())
        return Queue(partition_id, hex_of(queue_key), self.uri, tuple(apps), tuple(self.purges))


def hex_of(key: bytes) -> str:
    """A key or GUID as the reference's tools print it."""
    return key.hex().upper()


def load_queues(partitions: Iterable[Partition], ledgers: Iterable[Path]) -> list[Queue]:
    """The queues that the journals of `partitions` speak of.

    The journal points into the QLIST for URIs and apps. What it does not name so (a damaged record, a broker told to
    keep no QLIST) is taken from the rest of the QLIST and from the ledgers. A record that cannot be read names nothing.
    """
    in_ledgers = _read_ledgers(ledgers)
    queues: list[Queue] = []
    for partition in partitions:
        qlist = b"" if partition.qlist is None else map_file(partition.qlist)
        drafts = _read_journal(partition, qlist)
        elsewhere = {key: draft for (number, key), draft in in_ledgers.items() if number == partition.partition_id}
        for known in (_read_qlist(qlist), elsewhere):
            for key, draft in known.items():
                drafts.setdefault(key, _Draft()).complete(draft)
        queues += [draft.finish(partition.partition_id, key) for key, draft in drafts.items()]
    return queues


def _read_journal(partition: Partition, qlist: Buffer) -> dict[bytes, _Draft]:
    extent = partition.extent
    drafts: dict[bytes, _Draft] = {}
    for first, chunk in scan_chunks(map_file(partition.journal), extent):
        found, indexes = select(chunk, RecordType.QUEUE_OP)
        for words, index in zip(found, indexes.tolist(), strict=True):
            record = QUEUE_OP_RECORD.unpack(words.tobytes())
            if record.magic == RECORD_MAGIC:
                offset = extent.first_record_offset + (first + index) * JOURNAL_RECORD_SIZE
                _apply(drafts.setdefault(record.queue_key, _Draft()), record, offset, qlist)
    return drafts


def _apply(draft: _Draft, record: QueueOpRecord, offset: int, qlist: Buffer) -> None:
    kind, app_key = record.queue_op_type, record.app_key
    if kind in (QueueOpType.CREATION, QueueOpType.ADDITION):
        try:
            queue = parse_queue_record(qlist, record.queue_uri_record_offset_words * WORD)
        except FormatError:
            return
        if queue.queue_key == record.queue_key:
            draft.uri = queue.uri
            for app in queue.apps:
                draft.add(app.app_key, app.app_id, offset)
    elif kind == QueueOpType.DELETION and app_key != NULL_KEY:
        draft.until[app_key] = offset
    elif kind in (QueueOpType.PURGE, QueueOpType.DELETION):
        start = (record.start_primary_lease_id, record.start_sequence_number)
        purged = None if app_key == NULL_KEY else hex_of(app_key)
        draft.purges.append(Purge(offset, record.timestamp, purged, *start))


def _read_qlist(qlist: Buffer) -> dict[bytes, _Draft]:
    known: dict[bytes, _Draft] = {}
    try:
        for queue in iter_qlist(qlist):
            draft = known.setdefault(queue.queue_key, _Draft())
            draft.uri = queue.uri
            for app in queue.apps:
                draft.add(app.app_key, app.app_id, ALWAYS)
    except FormatError:
        pass
    return known


def _read_ledgers(ledgers: Iterable[Path]) -> dict[tuple[int, bytes], _Draft]:
    known: dict[tuple[int, bytes], _Draft] = {}
    for path in ledgers:
        try:
            for record in iter_ledger(map_file(path)):
                if record.header.record_type in (LedgerRecordType.SNAPSHOT, LedgerRecordType.UPDATE):
                    _learn(known, ber.decode(ClusterMessage, record.body))
        except FormatError:
            continue
    return known


def _learn(known: dict[tuple[int, bytes], _Draft], message: ClusterMessage) -> None:
    advisory: Any = message.choice
    infos: tuple[QueueInfo | QueueInfoUpdate, ...] = ()
    if isinstance(advisory, (LeaderAdvisory, QueueAssignmentAdvisory)):
        infos = advisory.queues
    elif isinstance(advisory, QueueUpdateAdvisory):
        infos = advisory.queue_updates
    for info in infos:
        draft = known.setdefault((info.partition_id, info.key), _Draft())
        draft.uri = info.uri or draft.uri
        for app in info.added_app_ids if isinstance(info, QueueInfoUpdate) else info.app_ids:
            draft.add(app.app_key, app.app_id, ALWAYS)
