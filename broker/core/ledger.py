"""The cluster-state ledger (CSL) of a cluster of one: which queues there are, where, and who is primary.

Every change is an update followed by its commit, in a file that starts with a snapshot. The leader's term grows with
every start; (term, sequence number) orders all records (source: mqbc::IncoreClusterStateLedger).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.core.clock import Now
from broker.core.queue import Full
from broker.ports.files import Directory, StoreFile
from formats.control import ber
from formats.control.messages import (
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
from formats.disk.keys import derive_key
from formats.disk.ledger import (
    LedgerFileName,
    LedgerRecordType,
    build_ledger_record,
    initial_ledger_bytes,
    open_ledger,
    parse_ledger_file_name,
)
from formats.disk.recover import iter_ledger

__all__ = ["ClusterState", "Ledger"]


@dataclass(slots=True)
class ClusterState:
    """What the ledger says when read from its start."""

    term: int = 0
    queues: dict[str, QueueInfo] = field(default_factory=dict)
    primaries: dict[int, PartitionPrimaryInfo] = field(default_factory=dict)

    def apply(self, message: ClusterMessage) -> None:
        """Take in one record's message."""
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
    """The open ledger. `state` is what is recorded; `end` is where the next record goes."""

    def __init__(self, directory: Directory, size_max: int, now: Now, make_timestamp: Callable[[str], str]) -> None:
        self.directory = directory
        self.size_max = size_max
        self.now = now
        self.make_timestamp = make_timestamp
        self.state = ClusterState()
        self.sequence_number = 0
        self.file: StoreFile | None = None
        self.end = 0

    def recover(self) -> bool:
        """Read the newest ledger in the folder; False when there is none. FormatError when it is damaged."""
        names = [name for name in self.directory.names() if parse_ledger_file_name(name)]
        if not names:
            return False
        self.file = self.directory.open(max(names), self.size_max)
        _, self.end = open_ledger(self.file.buffer)
        for record in iter_ledger(self.file.buffer):
            self.state.term = max(self.state.term, record.header.elector_term)
            self.state.apply(ber.decode(ClusterMessage, record.body))
            self.end = record.end
        return True

    def lead(self, primaries: dict[int, PartitionPrimaryInfo]) -> None:
        """Begin a term: the snapshot of all that is known, with these primaries, committed."""
        self.state.term += 1
        self.sequence_number = 0
        self.state.primaries = primaries
        if self.file is None:
            self._create()
        self._snapshot()

    def assign(self, info: QueueInfo) -> None:
        """Record a new queue. `Full` when the disk is."""
        self._append(LedgerRecordType.UPDATE, QueueAssignmentAdvisory(sequence_number=self._next(), queues=(info,)))
        self._commit()
        self.state.queues[info.uri] = info

    def _snapshot(self) -> None:
        advisory = LeaderAdvisory(
            sequence_number=self._next(),
            partitions=tuple(self.state.primaries.values()),
            queues=tuple(self.state.queues.values()),
        )
        self._append(LedgerRecordType.SNAPSHOT, advisory)
        self._commit()

    def _commit(self) -> None:
        committed = LeaderMessageSequence(elector_term=self.state.term, sequence_number=self.sequence_number)
        commit = LeaderAdvisoryCommit(sequence_number=self._next(), sequence_number_committed=committed)
        self._append(LedgerRecordType.COMMIT, commit)

    def _next(self) -> LeaderMessageSequence:
        self.sequence_number += 1
        return LeaderMessageSequence(elector_term=self.state.term, sequence_number=self.sequence_number)

    def _append(
        self,
        kind: LedgerRecordType,
        advisory: LeaderAdvisory | QueueAssignmentAdvisory | LeaderAdvisoryCommit,
    ) -> None:
        body = ber.encode(ClusterMessage(choice=advisory))
        number = advisory.sequence_number
        record = build_ledger_record(kind, number.elector_term, number.sequence_number, self.now.wall_s, body)
        assert self.file is not None
        if self.end + len(record) > len(self.file.buffer):
            self._roll_over()
        end = self.end + len(record)
        if not self.file.reserve(end):
            raise Full("STORAGE_FAILURE", "no room for the cluster-state ledger")
        self.file.buffer[self.end : end] = record
        self.end = end

    def _roll_over(self) -> None:
        """Go on in a new file that starts with the state so far; the old one is dropped, all of it being in there."""
        old = self.file
        self._create()
        self._snapshot()
        if old is not None:
            name = old.name
            old.close()
            self.directory.remove(name)

    def _create(self) -> None:
        timestamp = self.make_timestamp("bmq_csl_")
        log_id = derive_key(timestamp, self.now.wall_s << 20 | self.state.term << 10 | self.sequence_number, ())
        size = max(self.size_max, 4 * sum(200 + len(uri) for uri in self.state.queues))
        self.file = self.directory.open(str(LedgerFileName(timestamp, log_id)), size)
        head = initial_ledger_bytes(log_id)
        if not self.file.reserve(len(head)):
            raise Full("STORAGE_FAILURE", "no room for the cluster-state ledger")
        self.file.buffer[: len(head)] = head
        self.end = len(head)

    def flush(self) -> None:
        """Wait until it is on the disk."""
        if self.file is not None:
            self.file.flush()

    def close(self) -> None:
        """Cut the file to what is written."""
        if self.file is not None:
            self.file.close(self.end)
            self.file = None


def app_infos(apps: list[tuple[str, bytes]]) -> tuple[AppIdInfo, ...]:
    """App ids and keys as the ledger has them."""
    return tuple(AppIdInfo(app_id=app_id, app_key=key) for app_id, key in apps)
