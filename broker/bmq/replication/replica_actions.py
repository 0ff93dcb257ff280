# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Actions of the partition's table at a replica, and for records that arrive (source: as for the primary)."""

from __future__ import annotations

import logging
from typing import Final

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.work import Task, Work
from broker.bmq.replication.copying.copy_records import OutOfStep, TooSmall
from broker.bmq.replication.copying.replica_files import NO_BOUND
from broker.bmq.replication.mending import record_before
from broker.bmq.replication.partition_base import RETRY_MS, STATE_TIMEOUT_MS, PartitionBase
from broker.bmq.replication.partition_facts import Asked, Fact, Receiving
from broker.bmq.replication.partition_states import Event, State
from broker.bmq.replication.positions import NOWHERE, offset_behind, offset_of, on_wire
from broker.bmq.replication.replication import RecordTransfer, pack_records
from formats.bmq.control.messages import (
    PrimaryStateRequest,
    PrimaryStateResponse,
    ReplicaDataResponse,
    ReplicaDataType,
    ReplicaStateResponse,
    StatusCategory,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.event import EventType, build_event
from formats.errors import FormatError

__all__ = ["ReplicaActions"]

log: Final = logging.getLogger("broker.partition")

# Bytes of waiting records written in a unit of work.
BYTES_PER_UNIT: Final = 256
# Maximum size of records set aside by a replica that is busy with a rollover.
BUFFERED_MAX: Final = 64 << 20
NO_BODY: Final = memoryview(b"")


class ReplicaActions(PartitionBase):
    """The replica's actions: it asks for the primary's position, and receives, sends and writes records."""

    def ask_primary(self, event: Event, fact: Fact) -> None:
        assert self.primary_id is not None
        own = self.progress[self.links.own_id]
        if self.stored.damage.is_there and self._told_active.get(self.primary_id) != self.primary_lease_id:
            return  # the primary might count this node as one without lost records
        if self._starts_over and own.position != NOWHERE:
            return  # too little disk space: retried after a while; the primary would only repeat the same

        def answered(answer: object) -> None:
            if isinstance(answer, PrimaryStateResponse):
                sync_point = RecordNumber.of(answer.first_sync_point_after_rollover_sequence_number)
                self.fire(Event.PRIMARY_STATE_RSPN, Fact(sync_point=sync_point))
            else:
                self.fire(Event.FAIL_PRIMARY_STATE_RSPN)

        request = self._state_message(PrimaryStateRequest, own)
        self._ask(self.primary_id, request, answered, STATE_TIMEOUT_MS)

    def ask_primary_later(self, event: Event, fact: Fact) -> None:
        """Ask again later: the primary does not know yet, or the question was lost."""

        def ask() -> None:
            up = self.primary_id is not None and self.links.is_up(self.primary_id)
            if self.state is State.REPLICA_HEALING and self._receiving is None and up:
                self.reapply_as_replica(event, fact)

        self._later(2 * RETRY_MS, ask)

    def answer_primary(self, event: Event, fact: Fact) -> None:
        assert fact.asked is not None
        self._answer(fact.asked, self._state_message(ReplicaStateResponse, self.progress[self.links.own_id]))

    def send_to_primary(self, event: Event, fact: Fact) -> None:
        files = self.stored.files
        if fact.end != self.copy.records.position or self.copy.records.is_fresh:
            self.refuse(fact.asked, StatusCategory.INVALID_ARGUMENT, ClusterError.STORAGE_FAILURE, "End PSN mismatch")
            return
        start = offset_behind(files, fact.begin)
        if start is None:
            # The text is the reference's: programs wait for it in the log.
            log.warning(
                "Partition [%d]: Primary %s has PSN (%d, %d), which this replica has not, implying that primary has "
                "irreconcilable records.",
                self.stored.partition_id,
                self.listener.describe(fact.node_id),
                *fact.begin,
            )
            self.fire(Event.IRRECONCILABLE_DATA, fact)
            return
        done = lambda: self.fire(Event.DONE_SENDING_DATA_CHUNKS, fact)  # noqa: E731
        begins = fact.begin == NOWHERE
        self.transfer = RecordTransfer(self.stored, self.links, fact.node_id, start, done, begins=begins)

    def send_record(self, event: Event, fact: Fact) -> None:
        files = self.stored.files
        at = None if self.copy.rollovers.is_rolling else offset_of(files, fact.end)
        if at is None or record_before(files, fact.end) != fact.begin:
            text = "No such record"
            self.refuse(fact.asked, StatusCategory.INVALID_ARGUMENT, ClusterError.STORAGE_FAILURE, text)
            return
        body = bytearray()
        pack_records(body, files, self.stored.partition_id, at, at + JOURNAL_RECORD_SIZE)
        self.links.send(fact.node_id, build_event(EventType.PARTITION_SYNC, body))
        self._answer_data(fact.asked, ReplicaDataType.PULL, fact.begin, fact.end)

    def answer_pull(self, event: Event, fact: Fact) -> None:
        self._answer_data(fact.asked, ReplicaDataType.PULL, fact.begin, fact.end)

    def refuse_pull(self, event: Event, fact: Fact) -> None:
        if event is Event.IRRECONCILABLE_DATA:
            text = "Primary has irreconcilable data"
            self.refuse(fact.asked, StatusCategory.REFUSED, ClusterError.IRRECONCILABLE_DATA, text)
        else:
            self.refuse(fact.asked, StatusCategory.REFUSED, ClusterError.STORAGE_FAILURE, "Failed to send data chunks")

    def _answer_data(self, asked: Asked | None, kind: ReplicaDataType, begin: RecordNumber, end: RecordNumber) -> None:
        assert asked is not None
        response = ReplicaDataResponse(
            partition_id=self.stored.partition_id,
            primary_lease_id=self.primary_lease_id,
            replica_data_type=kind,
            begin_sequence_number=on_wire(begin),
            end_sequence_number=on_wire(end),
        )
        self._answer(asked, response)

    def drop(self, event: Event, fact: Fact) -> None:
        """Truncate after a position, or everything: then the old files are kept until the new ones are complete."""
        if fact.begin == NOWHERE or self.copy.records.is_fresh or not self.copy.cut(fact.begin):
            self._starts_over = True
            log.warning("Partition [%d]: is fetched again", self.stored.partition_id)
        else:
            log.warning("Partition [%d]: truncated to %s", self.stored.partition_id, self.copy.records.position)

    def answer_drop(self, event: Event, fact: Fact) -> None:
        self._answer_data(fact.asked, ReplicaDataType.DROP, fact.begin, fact.end)

    def receive(self, event: Event, fact: Fact) -> None:
        self._receiving = Receiving(fact.node_id, fact.begin, fact.end, self._primary_sync_point, fact.asked)
        try:
            # An empty replica is not received from scratch unless the primary's files begin with records carried over.
            records = self.copy.records
            is_ready = records.position == NOWHERE and (records.is_fresh or self._primary_sync_point == NOWHERE)
            if fact.begin == NOWHERE != fact.end and not is_ready:
                self.copy.settle()
                self.copy.start_over()
            if fact.begin != records.position:
                raise OutOfStep(f"the primary begins after {fact.begin}, this node is at {records.position}")
            self._check_received()
        except OutOfStep as error:
            self._not_received(error)

    def answer_push(self, event: Event, fact: Fact) -> None:
        assert self._receiving is not None
        self._answer_data(self._receiving.asked, ReplicaDataType.PUSH, self._receiving.begin, self._receiving.end)

    def refuse_push(self, event: Event, fact: Fact) -> None:
        asked = self._receiving.asked if self._receiving else None
        self.refuse(asked, StatusCategory.REFUSED, ClusterError.STORAGE_FAILURE, "Failed to receive data chunks")

    def answer_push_or_reapply(self, event: Event, fact: Fact) -> None:
        if fact.end == self.copy.records.position:
            self._answer_data(fact.asked, ReplicaDataType.PUSH, fact.begin, fact.end)
        else:
            self.reapply_as_replica(event, fact)

    def stop_receiving(self, event: Event, fact: Fact) -> None:
        self._receiving = None

    # -- records

    def write_recovered(self, event: Event, fact: Fact) -> None:
        receiving, received = self._receiving, fact.received
        assert received is not None
        if receiving is None or receiving.node_id != fact.node_id:
            return
        try:
            self.copy.write_all(*received, heals=True)
            if self.copy.records.position > receiving.end:
                raise OutOfStep(f"{self.copy.records.position} is after {receiving.end}, the announced end")
            self._check_received()
        except OutOfStep as error:
            self._not_received(error)
        finally:
            self.copy.end_event()

    def _check_received(self) -> None:
        receiving = self._receiving
        assert receiving is not None
        if self.copy.records.position == receiving.end:
            if self.copy.records.is_fresh:
                self._starts_over = False
            self.copy.complete(receiving.sync_point)
            self.stored.damage.heal(synced=self.stored.sets.outlives_power)
            if receiving.asked is not None:
                self.fire(Event.DONE_RECEIVING_DATA_CHUNKS)

    def _not_received(self, error: OutOfStep) -> None:
        log.error("Partition [%d]: healing fails: %s", self.stored.partition_id, error)
        self._starts_over |= isinstance(error, TooSmall)
        self.fire(Event.ERROR_RECEIVING_DATA_CHUNKS)

    def buffer(self, event: Event, fact: Fact) -> None:
        received = fact.received
        assert received is not None
        self._buffered.append(memoryview(bytes(received.data[received.start : received.end])))

    def clear_buffered(self, event: Event, fact: Fact) -> None:
        self._buffered.clear()

    def write_buffered(self, event: Event, fact: Fact) -> None:
        self._begin_writing()

    def write_live(self, event: Event, fact: Fact) -> None:
        assert fact.received is not None
        if self._writing is not None:
            self.buffer(event, fact)
            if self.copy.rollovers.rolls_again and sum(map(len, self._buffered)) > BUFFERED_MAX:
                self.copy.rollovers.finish()
            return
        before = self.copy.records.position
        self._write_live(*fact.received)
        if self.copy.records.position > before:
            self.stored.hears = not self.copy.records.is_fresh

    def _begin_writing(self) -> None:
        work = self.stored.work
        self._writing = writing = object()
        task = self._write_slowly(work, writing)
        if work is not None:
            work.start(task)
        else:
            for _ in task:
                """At once."""

    def _write_slowly(self, work: Work | None, writing: object) -> Task:
        rollovers, buffered = self.copy.rollovers, self._buffered
        while self._writing is writing and (buffered or rollovers.rolls_again):
            if work is not None and (not work.may_go_on() or (rollovers.rolls_again and rollovers.is_rolling)):
                yield
                continue
            body = buffered.popleft() if buffered else NO_BODY
            bytes_max = max(1, work.left) * BYTES_PER_UNIT if work is not None else NO_BOUND
            left = len(body) - self._write_live(body, 0, len(body), bytes_max)
            if work is not None:
                work.left -= 1 + (len(body) - left) // BYTES_PER_UNIT
        if self._writing is writing:
            self._writing = None

    def write_all_buffered(self) -> None:
        rollovers = self.copy.rollovers
        rollovers.finish()
        while self._writing is not None and (self._buffered or rollovers.rolls_again) and not rollovers.is_rolling:
            body = self._buffered.popleft() if self._buffered else NO_BODY
            self._write_live(body, 0, len(body))
            rollovers.finish()

    def _write_live(self, data: memoryview, start: int, end: int, bytes_max: int = NO_BOUND) -> int:
        """Write records of the primary up to the first that must wait; return the offset of that one."""
        copy = self.copy
        try:
            written, asking = copy.write_all(data, start, end, bytes_max=bytes_max)
        except (OutOfStep, FormatError) as error:
            log.error("Partition [%d]: a record of the primary does not fit: %s", self.stored.partition_id, error)
            is_garbage = isinstance(error, FormatError) and self._writing is None
            self._buffered.clear()
            self._writing = None
            self._starts_over |= isinstance(error, TooSmall)
            if is_garbage:
                raise
            self.fire(Event.ISSUE_LIVESTREAM)
            return end
        finally:
            copy.end_event()
        if asking is not None:
            self.receipt_due = asking
        if written < end:
            rest = data[written:end]
            self._buffered.appendleft(rest if self._writing is not None else memoryview(bytes(rest)))
        if self._writing is None and (written < end or copy.rollovers.rolls_again):
            self._begin_writing()
        return written
