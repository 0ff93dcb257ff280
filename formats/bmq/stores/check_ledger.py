"""Faults of a cluster-state ledger, by itself and compared with the partitions of its store.

The ledger records every queue with its partition, key and apps, and the primary of each partition with its lease. An
advisory takes effect at its commit, except the first of a file, which is a state committed in the previous file
(source: mqbc::ClusterStateLedgerIterator, mqbc::IncoreClusterStateLedger).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    AppIdInfo,
    ClusterMessage,
    LeaderAdvisory,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryAdvisory,
    PartitionPrimaryInfo,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.keys import hex_of
from formats.bmq.disk.ledger import (
    LEDGER_RECORD_HEADER,
    LedgerRecord,
    LedgerRecordType,
    open_ledger,
    parse_ledger_file_name,
    parse_ledger_record,
)
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.disk.padding import WORD
from formats.bmq.stores.check_queues import KnownQueue
from formats.bmq.stores.faults import Fault, Severity, fault
from formats.bmq.stores.source import Source
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["CheckedPartition", "LedgerQueue", "LedgerState", "check_agreement", "check_ledger", "find_ledger_record"]

Advisory = (
    LeaderAdvisory
    | PartitionPrimaryAdvisory
    | QueueAssignmentAdvisory
    | QueueUnAssignmentAdvisory
    | QueueUpdateAdvisory
)


class LedgerQueue(NamedTuple):
    """A queue as the ledger records it; `apps` are keys by id, `offset` is the record's, in bytes."""

    uri: str
    queue_key: bytes
    partition_id: int
    apps: dict[str, bytes]
    offset: int


@dataclass(slots=True)
class LedgerState:
    """The state that a ledger describes, built record by record from its start.

    `queues` are the committed ones, by key; `unsettled` are the keys of queues in advisories without a commit; `named`
    are the queues of any record. `leases` are the highest lease ids of partitions, committed or not; `primaries` are
    the nodes by (partition, lease id). `served` are the partitions with a primary in the last committed state.
    """

    name: str = ""
    end: int = 0
    term: int = 0
    damaged: bool = False
    queues: dict[bytes, LedgerQueue] = field(default_factory=dict)
    unsettled: set[bytes] = field(default_factory=set)
    named: dict[bytes, LedgerQueue] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    primaries: dict[tuple[int, int], int] = field(default_factory=dict)
    served: set[int] = field(default_factory=set)
    _waiting: dict[LedgerNumber, tuple[Advisory, int]] = field(default_factory=dict)
    _begun: bool = False

    def add(self, record: LedgerRecord, message: ClusterMessage) -> None:
        choice = message.choice
        self.term = max(self.term, record.header.elector_term)
        if isinstance(choice, LeaderAdvisoryCommit):
            waiting = self._waiting.pop(_number(choice.sequence_number_committed), None)
            if waiting is not None:
                self._apply(*waiting)
            self.unsettled = {key for advisory, _ in self._waiting.values() for key in _keys(advisory)}
        elif isinstance(choice, Advisory):
            if isinstance(choice, (LeaderAdvisory, PartitionPrimaryAdvisory)):
                self._note_primaries(choice.partitions)
            if isinstance(choice, (LeaderAdvisory, QueueAssignmentAdvisory)):
                self.named.update((info.key, _known(info, record.offset)) for info in choice.queues)
            if isinstance(choice, LeaderAdvisory) and not self._begun:
                self._apply(choice, record.offset)
            else:
                self._waiting[_number(choice.sequence_number)] = (choice, record.offset)
                self.unsettled.update(_keys(choice))
            self._begun = True

    def _note_primaries(self, partitions: tuple[PartitionPrimaryInfo, ...]) -> None:
        for each in partitions:
            self.leases[each.partition_id] = max(each.primary_lease_id, self.leases.get(each.partition_id, 0))
            self.primaries[each.partition_id, each.primary_lease_id] = each.primary_node_id

    def _apply(self, advisory: Advisory, offset: int) -> None:
        match advisory:
            case LeaderAdvisory():
                self.queues = {info.key: _known(info, offset) for info in advisory.queues}
                self.served = {info.partition_id for info in advisory.partitions}
            case QueueAssignmentAdvisory():
                self.queues.update((info.key, _known(info, offset)) for info in advisory.queues)
            case QueueUnAssignmentAdvisory():
                for info in advisory.queues:
                    self.queues.pop(info.key, None)
            case QueueUpdateAdvisory():
                for update in advisory.queue_updates:
                    queue = self.queues.get(update.key)
                    if queue is not None:
                        gone = {app.app_id for app in update.removed_app_ids}
                        apps = {app_id: key for app_id, key in queue.apps.items() if app_id not in gone}
                        self.queues[update.key] = queue._replace(apps=apps | _apps(update.added_app_ids), offset=offset)
            case PartitionPrimaryAdvisory():
                self.served.update(info.partition_id for info in advisory.partitions)


def _number(sequence: LeaderMessageSequence) -> LedgerNumber:
    return LedgerNumber(sequence.elector_term, sequence.sequence_number)


def _known(info: QueueInfo, offset: int) -> LedgerQueue:
    return LedgerQueue(info.uri, info.key, info.partition_id, _apps(info.app_ids), offset)


def _apps(infos: tuple[AppIdInfo, ...]) -> dict[str, bytes]:
    return {app.app_id: app.app_key for app in infos}


def _keys(advisory: Advisory) -> set[bytes]:
    if isinstance(advisory, QueueUpdateAdvisory):
        return {update.key for update in advisory.queue_updates}
    if isinstance(advisory, PartitionPrimaryAdvisory):
        return set()
    return {info.key for info in advisory.queues}


def check_ledger(ledger: Source) -> Generator[Fault, None, LedgerState]:
    """Yield the faults of a ledger by itself; return the state that its sound records describe."""
    state = LedgerState(ledger.name)
    buffer = ledger.read(0, ledger.size)
    try:
        header, state.end = open_ledger(buffer)
    except FormatError as error:
        yield fault("header", ledger.name, error.offset, f"{error.path}: {error.reason}")
        state.damaged = True
        return state
    name = parse_ledger_file_name(ledger.name)
    if name is not None and name.log_id != header.file_key:
        reason = f"the log id is {header.file_key.hex().upper()}, the name says {name.log_id.hex().upper()}"
        yield fault("ledger-name", ledger.name, 1, reason)
    if any(header.reserved):
        yield fault("reserved-not-zero", ledger.name, 6, "LedgerFileHeader.reserved")
    last = LedgerNumber(0, 0)
    first = state.end
    while True:
        try:
            record = parse_ledger_record(buffer, state.end)
        except FormatError as error:
            following = find_ledger_record(buffer, state.end)
            found = _break(ledger.name, buffer, state.end, error, following)
            if found is not None:
                state.damaged |= found.severity is Severity.ERROR
                yield found
            if following is None:
                return state
            state.end = following
            continue
        number = LedgerNumber(record.header.elector_term, record.header.sequence_number)
        # A rollover's snapshot has the number of the record that caused it, and uncommitted records follow it.
        opens = record.offset == first and record.header.record_type == LedgerRecordType.SNAPSHOT
        if number < last and record.header.record_type != LedgerRecordType.SNAPSHOT:
            yield fault("ledger-order", ledger.name, record.offset, f"{tuple(number)} after {tuple(last)}")
        if not opens:
            last = max(last, number)
        try:
            state.add(record, ber.decode(ClusterMessage, record.body))
        except FormatError as error:
            state.damaged = True
            yield fault("ledger-message", ledger.name, record.offset, f"{error.path}: {error.reason}")
        state.end = record.end


def _break(name: str, buffer: Buffer, at: int, error: FormatError, following: int | None) -> Fault | None:
    """Classify a place without a readable record: the end (None), a torn record, or damage."""
    rest = bytes(buffer[at:]).rstrip(b"\0")
    if following is not None:
        if any(buffer[at : at + WORD]):
            return _record_fault(name, error)
        return fault("ledger-record", name, at, f"zeros, but a record follows at {following}")
    if not rest:
        return None
    if len(rest) < LEDGER_RECORD_HEADER.size or not any(buffer[at : at + WORD]):
        return fault("ledger-tail", name, at, "an unfinished record")
    header = LEDGER_RECORD_HEADER.unpack(buffer, at)
    size = (header.header_words + header.leader_advisory_words) * WORD
    if len(rest) < size:
        return fault("ledger-tail", name, at, f"{len(rest)} bytes of a record of {size}")
    return _record_fault(name, error)


def _record_fault(name: str, error: FormatError) -> Fault:
    code = "ledger-checksum" if error.path == "LedgerRecord.crc32c" else "ledger-record"
    return fault(code, name, error.offset, f"{error.path}: {error.reason}")


# The first bytes of every record: a header size of eight words, the type, and reserved bytes.
_START = re.compile(rb"[\x81-\x84]\0\0\0")


def find_ledger_record(buffer: Buffer, start: int) -> int | None:
    """Return the offset of the first sound record at or after `start`, or None."""
    for match in _START.finditer(buffer, start):
        if match.start() % WORD == 0:
            try:
                parse_ledger_record(buffer, match.start())
            except FormatError:
                continue
            return match.start()
    return None


class CheckedPartition(Protocol):
    """The state that a partition's files describe; see `formats.bmq.stores.validate.SetChecker`."""

    @property
    def partition_id(self) -> int: ...
    @property
    def journal_name(self) -> str: ...
    @property
    def qlist_name(self) -> str | None: ...
    @property
    def queues(self) -> Mapping[bytes, KnownQueue]: ...
    @property
    def leases(self) -> Mapping[int, int]: ...
    @property
    def primaries(self) -> Mapping[int, tuple[int, int]]: ...


def check_agreement(state: LedgerState, partitions: Iterable[CheckedPartition]) -> Iterator[Fault]:
    """Yield the disagreements between the ledger and the files of the store's partitions.

    A contradiction is an error. A queue or app that only one of them has is a warning: a stop between two writes has
    that effect.
    """
    known = set()
    for partition in partitions:
        yield from _check_leases(state, partition)
        yield from _check_served(state, partition)
        by_uri = {queue.uri: queue for queue in state.queues.values() if queue.partition_id == partition.partition_id}
        for queue in partition.queues.values():
            known.add(queue.queue_key)
            recorded = state.queues.get(queue.queue_key) or by_uri.get(queue.uri or "")
            if recorded is None:
                if not state.damaged and queue.queue_key not in state.unsettled:
                    reason = f"queue {hex_of(queue.queue_key)} ({queue.uri}) is not in the ledger"
                    yield fault("ledger-lacks", partition.journal_name, queue.journal_offset, reason)
                continue
            known.add(recorded.queue_key)
            yield from _check_queue(state, partition, queue, recorded)
    for recorded in state.queues.values():
        if recorded.queue_key not in known and recorded.queue_key not in state.unsettled:
            reason = f"queue {hex_of(recorded.queue_key)} ({recorded.uri}) is not in partition {recorded.partition_id}"
            yield fault("ledger-ahead", state.name, recorded.offset, reason)


def _check_served(state: LedgerState, partition: CheckedPartition) -> Iterator[Fault]:
    """Yield a fault for a partition that has queues but no primary in the ledger's last state."""
    number = partition.partition_id
    if state.damaged or not state.served or number in state.served:
        return
    queue = next((queue for queue in state.queues.values() if queue.partition_id == number), None)
    if queue is not None:
        reason = f"partition {number} has queues, and no primary in the last state"
        yield fault("partition-unserved", state.name, queue.offset, reason)


def _check_leases(state: LedgerState, partition: CheckedPartition) -> Iterator[Fault]:
    told = state.leases.get(partition.partition_id)
    if told is not None:
        for lease, offset in partition.leases.items():
            if lease > told:
                reason = f"lease id {lease}, the ledger's last is {told}"
                yield fault("ledger-lease", partition.journal_name, offset, reason)
    for lease, (node_id, offset) in partition.primaries.items():
        told = state.primaries.get((partition.partition_id, lease))
        if told not in (None, node_id):
            reason = f"node {node_id} is primary under lease id {lease}, the ledger says {told}"
            yield fault("ledger-disagreement", partition.journal_name, offset, reason)


def _check_queue(
    state: LedgerState, partition: CheckedPartition, queue: KnownQueue, recorded: LedgerQueue
) -> Iterator[Fault]:
    name, offset = partition.qlist_name, queue.qlist_offset
    if name is None or offset is None:
        name, offset = partition.journal_name, queue.journal_offset

    def differs(what: str, here: object, there: object) -> Fault:
        reason = f"queue {hex_of(queue.queue_key)}: {what} {here} here, {there} in the ledger"
        return fault("ledger-disagreement", name, offset, reason)

    if recorded.queue_key != queue.queue_key:
        yield differs("key", hex_of(queue.queue_key), hex_of(recorded.queue_key))
        return
    if recorded.partition_id != partition.partition_id:
        yield differs("partition", partition.partition_id, recorded.partition_id)
    if queue.uri is None:
        return
    if recorded.uri != queue.uri:
        yield differs("URI", queue.uri, recorded.uri)
    ids = {key: app_id for app_id, key in recorded.apps.items()}
    one_sided = set(queue.apps) ^ set(recorded.apps)
    for app_id, key in queue.apps.items():
        if recorded.apps.get(app_id, key) != key:
            yield differs(f"the key of app {app_id!r} is", hex_of(key), hex_of(recorded.apps[app_id]))
        elif ids.get(key, app_id) != app_id:
            yield differs(f"the app with key {hex_of(key)} is", repr(app_id), repr(ids[key]))
            one_sided -= {app_id, ids[key]}
    if queue.is_complete and queue.apps and queue.queue_key not in state.unsettled:
        for app_id in sorted(one_sided):
            where = "not in the ledger" if app_id in queue.apps else "in the ledger only"
            reason = f"queue {hex_of(queue.queue_key)}: app {app_id!r} is {where}"
            yield fault("ledger-lacks" if app_id in queue.apps else "ledger-ahead", name, offset, reason)
