"""The cluster-state ledger (CSL): the cluster's queues, their partitions, and the partitions' primaries.

Every change is an update that a commit follows, in a file that starts with a snapshot; (term, sequence number) orders
all records (source: mqbc::IncoreClusterStateLedger). In a cluster of one a commit follows at once, and the term grows
with every start; in a larger one `broker.bmq.consensus.replicated` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.bmq.core.messages import Full
from broker.bmq.store.damage import LEDGER_NOTE, Damage
from broker.bmq.store.partition_files import readable, written_end, zero_from
from broker.common.clock import Now
from broker.common.faults import Change
from broker.common.files import Directory, StoreFile
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AppIdInfo,
    ClusterMessage,
    LeaderAdvisory,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryAdvisory,
    PartitionPrimaryInfo,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueInfoUpdate,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.control.printed import printed
from formats.bmq.disk.keys import derive_key
from formats.bmq.disk.ledger import (
    LEDGER_FILE_HEADER,
    LEDGER_RECORD_HEADER,
    LedgerFileName,
    LedgerRecordType,
    build_ledger_record,
    initial_ledger_bytes,
    open_ledger,
    parse_ledger_file_name,
    parse_ledger_record,
)
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.disk.padding import WORD
from formats.bmq.stores.check_ledger import find_ledger_record
from formats.bmq.stores.recover import iter_ledger
from formats.errors import FormatError

__all__ = ["Advisory", "ClusterState", "Ledger", "Make", "app_infos"]

log: Final = logging.getLogger("broker.ledger")

NO_ROOM: Final = "no room for the cluster-state ledger"

# The messages that change the state. A snapshot is a `LeaderAdvisory`.
Advisory = (
    LeaderAdvisory
    | PartitionPrimaryAdvisory
    | QueueAssignmentAdvisory
    | QueueUnAssignmentAdvisory
    | QueueUpdateAdvisory
)
Make = Callable[[LeaderMessageSequence], Advisory]

# Bytes reserved for the commit of each advisory: the size of its record with the highest numbers.
COMMIT_SIZE_MAX: Final = 104


# The part of a record's header that holds the sizes of header and record.
LENGTHS_SIZE: Final = 8


class Uncommitted(NamedTuple):
    """An advisory that is recorded but may still be discarded."""

    advisory: Advisory
    record: bytes


@dataclass(slots=True)
class ClusterState:
    """The state of the cluster according to the ledger, read from its start."""

    term: int = 0
    queues: dict[str, QueueInfo] = field(default_factory=dict)
    primaries: dict[int, PartitionPrimaryInfo] = field(default_factory=dict)

    def apply(self, message: ClusterMessage) -> None:
        choice = message.choice
        match choice:
            case LeaderAdvisory():
                self.queues = {info.uri: info for info in choice.queues}
                self.primaries = {info.partition_id: info for info in choice.partitions}
            case PartitionPrimaryAdvisory():
                self.primaries.update((info.partition_id, info) for info in choice.partitions)
            case QueueAssignmentAdvisory():
                self.queues.update((info.uri, info) for info in choice.queues)
            case QueueUnAssignmentAdvisory():
                for info in choice.queues:
                    self.queues.pop(info.uri, None)
            case QueueUpdateAdvisory():
                for update in choice.queue_updates:
                    old = self.queues.get(update.uri)
                    if old is not None:
                        kept = [app for app in old.app_ids if app not in update.removed_app_ids]
                        apps = (*kept, *update.added_app_ids)
                        self.queues[update.uri] = QueueInfo(
                            uri=old.uri, key=old.key, partition_id=old.partition_id, app_ids=apps
                        )
            case _:
                pass  # commits and acks change nothing in a cluster of one


class Ledger:
    """The open ledger. `end` is the offset of the next record.

    `state` is recorded and committed. All records of a file at opening count as committed; a leader's state corrects
    that later. `uncommitted` are the advisories recorded since, in order. While there is `damage`, this node may have
    lost records that it acknowledged.
    """

    def __init__(
        self,
        directory: Directory,
        size_max: int,
        now: Now,
        make_timestamp: Callable[[str], str],
        damage: Damage | None = None,
        *,
        outlives_power: bool = False,
    ) -> None:
        self.damage = damage or Damage(directory, LEDGER_NOTE)
        self.directory = directory
        self.size_max = size_max
        self.now = now
        self.make_timestamp = make_timestamp
        self._outlives_power = outlives_power
        self.state = ClusterState()
        self.sequence_number = 0
        self.uncommitted: dict[LedgerNumber, Uncommitted] = {}
        self.file: StoreFile | None = None
        self.end = 0

    @property
    def number(self) -> LedgerNumber:
        return LedgerNumber(self.state.term, self.sequence_number)

    def recover(self) -> bool:
        """Read the newest ledger in the directory and remove the older ones; return False if there is none.

        An incomplete record at the end is truncated. A file without a complete record, or with an unfinished rollover,
        is removed, and the file before it is used. Raises FormatError for a damaged ledger, which is then `file`.
        """
        names = sorted(name for name in self.directory.names() if parse_ledger_file_name(name))
        found = False
        while names and not found:
            name = names.pop()
            self.file = self.directory.open(name, self.size_max)
            found = not (names and _is_unfinished(self.file)) and self._read(self.file)
            if not found:
                self._drop()
        for name in names:
            self.directory.remove(name)
        return found

    def _read(self, file: StoreFile) -> bool:
        """Apply the records of a file; return False if it has no complete one. Raises FormatError if it is damaged."""
        try:
            header, first = open_ledger(readable(file))
            name = parse_ledger_file_name(file.name)
            if name is not None and name.log_id != header.file_key:
                reason = f"{header.file_key.hex().upper()} does not match the file's name"
                raise FormatError("LedgerFileHeader.file_key", 1, reason)
        except FormatError:
            if written_end(file) < LEDGER_FILE_HEADER.size:
                return False
            raise
        self.end = first
        try:
            for record in iter_ledger(readable(file)):
                # A rollover's snapshot may have a higher number than the uncommitted advisories after it.
                number = LedgerNumber(record.header.elector_term, record.header.sequence_number)
                self.state.term, self.sequence_number = max(self.number, number)
                self.state.apply(ber.decode(ClusterMessage, record.body))
                self.end = record.end
        except FormatError:
            if not _is_torn(file, self.end) or _has_rotten_length(file, self.end):
                raise
        following = find_ledger_record(readable(file), self.end)
        if following is not None:
            # A damaged length may make a record look torn, and zeros the file look ended.
            raise FormatError("LedgerRecord", self.end, f"cannot be read, though a record follows at {following}")
        cut = zero_from(file, self.end)
        if cut:
            log.warning("%s: truncated %d bytes after the last complete record", file.name, cut)
        return self.end > first

    def lead(self, primaries: dict[int, PartitionPrimaryInfo]) -> None:
        """Begin a term with a committed snapshot of the state with these primaries. Raises `Full` if the disk is."""
        self.state.term += 1
        self.sequence_number = 0
        self.state.primaries = primaries
        if self.file is None:
            self._start_file()
        else:
            self._append(LedgerRecordType.SNAPSHOT, self._snapshot)

    def assign(self, info: QueueInfo) -> None:
        """Record a new queue. Raises `Full`, without effect, if the disk is."""
        self._advise(lambda number: QueueAssignmentAdvisory(sequence_number=number, queues=(info,)))

    def update_apps(
        self, info: QueueInfo, domain: str, added: tuple[AppIdInfo, ...], removed: tuple[AppIdInfo, ...]
    ) -> None:
        """Record a queue's added and removed apps. Raises `Full` like `assign`."""
        update = QueueInfoUpdate(
            uri=info.uri,
            key=info.key,
            partition_id=info.partition_id,
            added_app_ids=added,
            removed_app_ids=removed,
            domain=domain,
        )
        self._advise(lambda number: QueueUpdateAdvisory(sequence_number=number, queue_updates=(update,)))

    def unassign(self, info: QueueInfo, primary: PartitionPrimaryInfo) -> None:
        """Record the removal of a queue. Raises `Full` like `assign`."""
        self._advise(
            lambda number: QueueUnAssignmentAdvisory(
                sequence_number=number,
                partition_id=info.partition_id,
                primary_lease_id=primary.primary_lease_id,
                primary_node_id=primary.primary_node_id,
                queues=(info,),
            )
        )

    def _advise(self, make: Make) -> None:
        with Change("a record of the cluster-state ledger", Full):
            self._append(LedgerRecordType.UPDATE, make)
            self.state.apply(ClusterMessage(choice=make(self._number(0))))

    # -- of several nodes: records come one by one, from this node when it leads or from the leader

    @property
    def recorded(self) -> ClusterState:
        """The state according to all records, committed or not: a new leader begins with it."""
        state = ClusterState(self.state.term, dict(self.state.queues), dict(self.state.primaries))
        for uncommitted in self.uncommitted.values():
            state.apply(ClusterMessage(choice=uncommitted.advisory))
        return state

    def append(self, number: LedgerNumber, advisory: Advisory, record: bytes) -> None:
        """Write an advisory's record, with room for its commit. Raises `Full` like `assign`."""
        self._write(number, record, COMMIT_SIZE_MAX * (len(self.uncommitted) + 1))
        if isinstance(advisory, LeaderAdvisory):
            # A later leader's state replaces advisories that an earlier one could not commit.
            for old in [old for old in self.uncommitted if old.term < number.term]:
                del self.uncommitted[old]
            if self.damage.is_there:
                # It includes everything that a quorum has recorded.
                self.flush()
                self.damage.heal()
        self.uncommitted[number] = Uncommitted(advisory, record)

    def commit(self, number: LedgerNumber, committed: LedgerNumber, record: bytes) -> Advisory:
        """Write the record, numbered `number`, that commits an advisory, and apply that to the state."""
        self._write(number, record, 0)
        advisory = self.uncommitted[committed].advisory
        # Commits are in order: for older advisories a follower missed the commit, and has received a snapshot since.
        for old in [old for old in self.uncommitted if old <= committed]:
            del self.uncommitted[old]
        self.state.apply(ClusterMessage(choice=advisory))
        if log.isEnabledFor(logging.INFO):
            log.info("Committed advisory: %s", printed(ClusterMessage(choice=advisory)))
        return advisory

    def _write(self, number: LedgerNumber, record: bytes, spare: int) -> None:
        assert number > self.number
        if self.file is None or self.end + len(record) + spare > len(self.file.buffer):
            self._roll_over(len(record) + spare)
        assert self.file is not None
        end = self.end + len(record)
        if not self.file.reserve(end + spare):
            raise Full("STORAGE_FAILURE", NO_ROOM)
        self.file.buffer[self.end : end] = record
        self.end = end
        self.state.term, self.sequence_number = number

    def _roll_over(self, room: int) -> None:
        """Continue in a new file: the committed state, with the number of the last record, then uncommitted advisories.

        Every node does so by itself when its file is full. The very first file begins empty.
        """
        head = b""
        if self.file is not None:
            number = LeaderMessageSequence(elector_term=self.state.term, sequence_number=self.sequence_number)
            head = self._record(LedgerRecordType.SNAPSHOT, number, self._snapshot(number))
            head += b"".join([uncommitted.record for uncommitted in self.uncommitted.values()])
        self._begin(head, room)

    # -- files

    def _snapshot(self, number: LeaderMessageSequence) -> LeaderAdvisory:
        return LeaderAdvisory(
            sequence_number=number,
            partitions=tuple(self.state.primaries.values()),
            queues=tuple(self.state.queues.values()),
        )

    def _append(self, kind: LedgerRecordType, make: Make) -> None:
        assert self.file is not None
        records = self._records(kind, make)
        if self.end + len(records) > len(self.file.buffer):
            self._start_file(len(records))
            records = self._records(kind, make)
        end = self.end + len(records)
        if not self.file.reserve(end):
            raise Full("STORAGE_FAILURE", NO_ROOM)
        self.file.buffer[self.end : end] = records
        self.end = end
        self.sequence_number += 2
        if log.isEnabledFor(logging.INFO):
            log.info("Applied advisory: %s", printed(ClusterMessage(choice=make(self._number(-1)))))

    def _records(self, kind: LedgerRecordType, make: Make) -> bytes:
        advised, committing = self._number(1), self._number(2)
        commit = LeaderAdvisoryCommit(sequence_number=committing, sequence_number_committed=advised)
        return self._record(kind, advised, make(advised)) + self._record(LedgerRecordType.COMMIT, committing, commit)

    def _number(self, ahead: int) -> LeaderMessageSequence:
        return LeaderMessageSequence(elector_term=self.state.term, sequence_number=self.sequence_number + ahead)

    def _record(
        self, kind: LedgerRecordType, number: LeaderMessageSequence, choice: Advisory | LeaderAdvisoryCommit
    ) -> bytes:
        body = ber.encode(ClusterMessage(choice=choice))
        return build_ledger_record(kind, number.elector_term, number.sequence_number, self.now.wall_s, body)

    def _start_file(self, room: int = 0) -> None:
        self._begin(self._records(LedgerRecordType.SNAPSHOT, self._snapshot), room)
        self.sequence_number += 2

    def _begin(self, records: bytes, room: int) -> None:
        try:
            timestamp = self.make_timestamp("bmq_csl_")
        except OSError as error:
            raise Full("STORAGE_FAILURE", f"{NO_ROOM}: {error.strerror}") from None
        log_id = derive_key(timestamp, self.now.wall_s << 20 | self.state.term << 10 | self.sequence_number, ())
        head = initial_ledger_bytes(log_id) + records
        name, size = str(LedgerFileName(timestamp, log_id)), max(self.size_max, 2 * (len(head) + room))
        try:
            file = self.directory.open(name, size)
        except OSError as error:
            raise Full("STORAGE_FAILURE", f"{NO_ROOM}: {name}: {error.strerror}") from None
        if not file.reserve(len(head) + room):
            file.close()
            self.directory.remove(file.name)
            raise Full("STORAGE_FAILURE", NO_ROOM)
        if self.file is None:
            file.buffer[: len(head)] = head
        else:
            self._replace(file, head)
            old = parse_ledger_file_name(self.file.name)
            was = old.log_id.hex().upper() if old else self.file.name
            log.info("Rolling over from log with logId [%s] to new log with logId [%s]", was, log_id.hex().upper())
        self._drop()
        self.file = file
        self.end = len(head)

    def _replace(self, file: StoreFile, head: bytes) -> None:
        """Fill the file that will replace the one in use; the header, without which it does not count, comes last.

        A power failure may leave any unflushed part on the disk. The snapshot alone would pass for all records, since
        it has the number of the newest.
        """
        file.buffer[LEDGER_FILE_HEADER.size : len(head)] = head[LEDGER_FILE_HEADER.size :]
        if self._outlives_power:
            with Change("a new file of the cluster-state ledger"):
                file.flush()
        file.buffer[: LEDGER_FILE_HEADER.size] = head[: LEDGER_FILE_HEADER.size]
        if self._outlives_power:
            with Change("a new file of the cluster-state ledger"):
                file.flush()
                self.directory.flush()

    def _drop(self) -> None:
        if self.file is not None:
            name = self.file.name
            self.file.close()
            self.file = None
            self.directory.remove(name)

    def let_go(self) -> None:
        """Close a damaged file unchanged."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def flush(self) -> None:
        if self.file is not None:
            self.file.flush()

    def close(self) -> None:
        if self.file is not None:
            self.file.close(self.end)
            self.file = None


def _is_unfinished(file: StoreFile) -> bool:
    return not any(file.buffer[: LEDGER_FILE_HEADER.size])


def _is_torn(file: StoreFile, at: int) -> bool:
    """Return True if the bytes from `at` on are the beginning of one record and nothing else."""
    written = written_end(file)
    if written < at + LEDGER_RECORD_HEADER.size:
        return True
    header = LEDGER_RECORD_HEADER.unpack(file.buffer, at)
    return written < at + (header.header_words + header.leader_advisory_words) * WORD


def _has_rotten_length(file: StoreFile, at: int) -> bool:
    """Return True if the record at `at` is sound except for one bit of its sizes: then it is not torn."""
    record = bytearray(readable(file)[at:])
    for bit in range(min(8 * LENGTHS_SIZE, 8 * len(record))):
        mask = 1 << bit % 8
        record[bit // 8] ^= mask
        try:
            parse_ledger_record(record, 0)
        except FormatError:
            record[bit // 8] ^= mask
        else:
            return True
    return False


def app_infos(apps: list[tuple[str, bytes]]) -> tuple[AppIdInfo, ...]:
    return tuple(AppIdInfo(app_id=app_id, app_key=key) for app_id, key in apps)
