"""Catalogue of a store's queues as its files describe them: names, apps, and the purges that emptied them.

A journal identifies queues and apps by key. Its CREATION and ADDITION records refer to QLIST for the names; a name
missing there (a damaged record, a broker configured without QLIST) is taken from the rest of QLIST, and then from the
cluster-state ledgers. Unreadable records are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    ClusterMessage,
    LeaderAdvisory,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueInfoUpdate,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import QUEUE_OP_RECORD, RECORD_MAGIC, QueueOpRecord, QueueOpType, RecordType, select
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY, hex_of
from formats.bmq.disk.ledger import LedgerRecordType
from formats.bmq.disk.qlist import parse_queue_record
from formats.bmq.padding import WORD
from formats.bmq.stores.recover import iter_ledger, iter_qlist
from formats.errors import FormatError
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ALWAYS", "App", "Event", "NamedByLedgers", "Purge", "Queue", "QueueCatalog", "read_ledgers"]

ALWAYS = -1
"""The value of `App.since` that precedes every offset."""


class App(NamedTuple):
    """An app of a queue from journal offset `since` to `until`, exclusive (None: to the end)."""

    app_key: str
    app_id: str
    since: int
    until: int | None


class Purge(NamedTuple):
    """A purge of an app, or (`app_key` None) of the queue: of the messages before journal offset `offset`.

    For an app it begins with the message that `start_*` give.
    """

    offset: int
    timestamp: int
    app_key: str | None
    start_primary_lease_id: int
    start_sequence_number: int


class Event(NamedTuple):
    """A change of a queue: the record's journal offset in bytes, and its time in seconds."""

    offset: int
    timestamp: int


class Queue(NamedTuple):
    """A queue of one partition; keys are upper-case hex, `uri` is None if neither QLIST nor ledger names it.

    `created` is None if only QLIST or a ledger names it.
    """

    partition_id: int
    queue_key: str
    uri: str | None
    apps: tuple[App, ...]
    purges: tuple[Purge, ...]
    created: Event | None
    deleted: Event | None


class _Draft:
    """A queue while its records are read."""

    def __init__(self) -> None:
        self.uri: str | None = None
        self.since: dict[bytes, tuple[str, int]] = {}
        self.until: dict[bytes, int] = {}
        self.purges: list[Purge] = []
        self.created: Event | None = None
        self.deleted: Event | None = None

    def add(self, app_key: bytes, app_id: str, offset: int) -> None:
        if app_key not in self.since:
            self.since[app_key] = (app_id, offset)

    def complete(self, other: _Draft) -> None:
        self.uri = self.uri or other.uri
        for app_key, (app_id, offset) in other.since.items():
            self.add(app_key, app_id, offset)

    def finish(self, partition_id: int, queue_key: bytes) -> Queue:
        if not self.since:
            self.add(DEFAULT_APP_KEY, DEFAULT_APP_ID, ALWAYS)
        apps = (App(hex_of(key), name, since, self.until.get(key)) for key, (name, since) in self.since.items())
        return Queue(
            partition_id,
            hex_of(queue_key),
            self.uri,
            tuple(apps),
            tuple(self.purges),
            self.created,
            self.deleted,
        )


NamedByLedgers = dict[tuple[int, bytes], _Draft]
"""The result of `read_ledgers`, for `QueueCatalog`."""


class QueueCatalog:
    """Gathers the queues of one partition from chunks of its journal."""

    def __init__(self, partition_id: int, qlist: Buffer) -> None:
        """`qlist` is the QLIST file, empty if absent."""
        self._partition_id = partition_id
        self._qlist = qlist
        self._drafts: dict[bytes, _Draft] = {}

    def feed(self, offset: int, records: NDArray[Any], qlist: Buffer | None = None) -> None:
        """Add scanned records (`formats.bmq.disk.journal.scan`), the first of them at journal offset `offset`.

        `qlist` is the QLIST file that these records refer to, if it is not that of the catalogue.
        """
        found, indexes = select(records, RecordType.QUEUE_OP)
        for words, index in zip(found, indexes.tolist(), strict=True):
            record = QUEUE_OP_RECORD.unpack(words.tobytes())
            if record.magic == RECORD_MAGIC:
                draft = self._drafts.setdefault(record.queue_key, _Draft())
                _apply(draft, record, offset + index * JOURNAL_RECORD_SIZE, self._qlist if qlist is None else qlist)

    def queues(self, in_ledgers: NamedByLedgers) -> list[Queue]:
        """All queues in the order in which the journal first names them, then the others."""
        elsewhere = {key: draft for (number, key), draft in in_ledgers.items() if number == self._partition_id}
        for known in (_read_qlist(self._qlist), elsewhere):
            for key, draft in known.items():
                self._drafts.setdefault(key, _Draft()).complete(draft)
        return [draft.finish(self._partition_id, key) for key, draft in self._drafts.items()]


def _apply(draft: _Draft, record: QueueOpRecord, offset: int, qlist: Buffer) -> None:
    kind, app_key = record.queue_op_type, record.app_key
    here = Event(offset, record.timestamp)
    if kind == QueueOpType.CREATION:
        draft.created, draft.deleted = here, None
    elif kind == QueueOpType.DELETION and app_key == NULL_KEY:
        draft.deleted = here
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


def read_ledgers(ledgers: Iterable[Buffer]) -> dict[tuple[int, bytes], _Draft]:
    """Collect the queues that ledgers name, by partition and queue key; a damaged ledger counts up to the damage."""
    known: dict[tuple[int, bytes], _Draft] = {}
    for ledger in ledgers:
        try:
            for record in iter_ledger(ledger):
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
