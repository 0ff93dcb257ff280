"""What the rows of the partition's table do (source: mqbc::StorageManager's do_ functions)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from broker.cluster.copying import Copy, OutOfStep
from broker.cluster.divergence import Cure, Kinship, judge
from broker.cluster.links import Links
from broker.cluster.partition_table import Event, State
from broker.cluster.positions import NOWHERE, Position, first_sync_point, history, last_position, offset_behind
from broker.cluster.replication import Stream, Transfer
from broker.cluster.requests import Choice, Requests
from broker.core.clock import Now
from broker.core.messages import Full
from broker.core.shard import Shard
from broker.core.timers import Timers
from broker.store.recovery import Recovered, recover
from formats.codes import StorageFlag
from formats.control.messages import (
    ClusterMessage,
    ControlMessage,
    PartitionMessage,
    PrimaryStateRequest,
    PrimaryStateResponse,
    PrimaryStatus,
    PrimaryStatusAdvisory,
    ReplicaDataRequest,
    ReplicaDataResponse,
    ReplicaDataType,
    ReplicaStateRequest,
    ReplicaStateResponse,
    Status,
    StatusCategory,
)
from formats.wire.storage import iter_storage

__all__ = ["NO_FACT", "Asked", "Fact", "PartitionActions", "Received"]

log = logging.getLogger("broker.partition")

STATE_TIMEOUT_MS = 10_000
# A replica that heals may take this long; a lost link ends it at once.
DATA_TIMEOUT_MS = 600_000
RETRY_MS = 500

# mqbi::ClusterErrorCode
ERROR_NOT_PRIMARY = -201
ERROR_NOT_REPLICA = -207
ERROR_STORAGE_FAILURE = -209
ERROR_REPLICA_WAITING = -210
ERROR_IRRECONCILABLE_DATA = -213

_RECEIPT_REQUESTED = int(StorageFlag.RECEIPT_REQUESTED)


class Asked(NamedTuple):
    """A request that waits for its answer."""

    node_id: int
    message: ControlMessage


class Received(NamedTuple):
    """The messages of an event: `data[start:end]`."""

    data: memoryview
    start: int
    end: int


class Fact(NamedTuple):
    """What comes with an event of the table, as far as it has that; `end` is also how far a node is."""

    node_id: int = -1
    asked: Asked | None = None
    begin: Position = NOWHERE
    end: Position = NOWHERE
    sync_point: Position = NOWHERE
    received: Received | None = None
    primary_id: int | None = None
    lease_id: int = 0


NO_FACT = Fact()


class Standing(NamedTuple):
    """How far a node is, and the first sync point behind its last rollover."""

    position: Position
    sync_point: Position


class Receiving(NamedTuple):
    """The records that a node will send; `asked` is the primary's request to take them."""

    node_id: int
    begin: Position
    end: Position
    sync_point: Position
    asked: Asked | None


class PartitionActions:
    """The partition's data, and an action for each name in the table.

    `standings` are those of the nodes that have said how far they are, this one included; `healed` are the nodes, this
    one included, that have all that the primary had when it opened. `stream` is there while this node is a primary that
    needs nothing from others.
    """

    state: State
    fire: Callable[..., None]
    on_restore: Callable[[Recovered], None]
    on_active: Callable[[], None]
    on_passive: Callable[[], None]

    def __init__(
        self,
        shard: Shard,
        copy: Copy,
        links: Links,
        requests: Requests,
        now: Now,
        timers: Timers,
        quorum: int,
        watchdog_ms: int,
    ) -> None:
        self.shard = shard
        self.copy = copy
        self.links = links
        self.requests = requests
        self.quorum = quorum
        self._now = now
        self._timers = timers
        self._watchdog_ms = watchdog_ms
        self.primary_id: int | None = None
        self.primary_lease_id = 0
        self.primary_is_active = False  # another node that is primary says that it serves the shard
        self.standings: dict[int, Standing] = {}
        self.healed: set[int] = set()
        self.stream: Stream | None = None
        self.transfer: Transfer | None = None  # to a primary that heals itself from here
        self.receipt_due: Position | None = None
        self._primary_sync_point = NOWHERE
        self._receiving: Receiving | None = None
        self._begins_anew = False  # the primary wants everything dropped
        self._buffered: list[bytes] = []
        self._asked_numbers: set[int] = set()
        self._generation = 0  # of the attempt to heal
        self._watchdog_generation = 0

    @property
    def is_replica(self) -> bool:
        return self.state in (State.REPLICA_WAITING, State.REPLICA_HEALING, State.REPLICA_HEALED)

    # -- asking and answering

    def _ask(self, node_id: int, choice: object, answered: Callable[[object], None], timeout_ms: int) -> None:
        def take(answer: Choice) -> None:
            self._asked_numbers.discard(number)
            if isinstance(answer, ClusterMessage) and isinstance(answer.choice, PartitionMessage):
                answered(answer.choice.choice)
            else:
                answered(answer)

        message = ClusterMessage(choice=PartitionMessage(choice=choice))  # type: ignore[arg-type]
        number = self.requests.send(node_id, message, take, timeout_ms)
        self._asked_numbers.add(number)

    def _answer(self, asked: Asked, choice: object) -> None:
        message = ClusterMessage(choice=PartitionMessage(choice=choice))  # type: ignore[arg-type]
        self.requests.respond(asked.node_id, asked.message, message)

    def refuse(self, asked: Asked | None, category: StatusCategory, code: int, text: str) -> None:
        if asked is not None:
            self.requests.respond(asked.node_id, asked.message, Status(category=category, code=code, message=text))

    def cancel_requests(self, event: Event, fact: Fact) -> None:
        for number in self._asked_numbers:
            self.requests.cancel(number)
        self._asked_numbers.clear()

    def _later(self, ms: int, action: Callable[[], None]) -> None:
        """Take an action after a while, unless healing begins again before."""
        generation = self._generation
        self._timers.at(self._now.ms + ms, lambda: action() if generation == self._generation else None)

    # -- roles

    def set_primary(self, event: Event, fact: Fact) -> None:
        self.primary_id = fact.primary_id
        self.primary_lease_id = fact.lease_id
        self.copy.lease_id_max = fact.lease_id
        self.primary_is_active = False
        self._begins_anew = False

    def clear_primary(self, event: Event, fact: Fact) -> None:
        self.primary_id, self.primary_lease_id, self.primary_is_active = None, 0, False
        self._begins_anew = False

    def clean_up(self, event: Event, fact: Fact) -> None:
        """Forget what the other nodes have said; a primary leaves its office."""
        self._generation += 1
        shard = self.shard
        self.stream = self.transfer = self._receiving = self.receipt_due = None
        shard.before_rollover = _nothing
        shard.after_rollover = _ignore
        if shard.active:
            self.on_passive()
            shard.deactivate()
            removed = self.copy.removed
            self.copy = Copy(shard, recover(shard.files))
            self.copy.removed = removed
            self.copy.end_event()
        else:
            self.copy.settle()
        self.standings.clear()
        self.healed.clear()
        self._buffered.clear()

    def reapply_event(self, event: Event, fact: Fact) -> None:
        self.fire(event, fact)

    def reapply_as_primary(self, event: Event, fact: Fact) -> None:
        self.fire(Event.REAPPLY_SELF_PRIMARY, Fact(primary_id=self.primary_id, lease_id=self.primary_lease_id))

    def reapply_as_replica(self, event: Event, fact: Fact) -> None:
        self.fire(Event.REAPPLY_SELF_REPLICA, Fact(primary_id=self.primary_id, lease_id=self.primary_lease_id))

    def reapply_later(self, event: Event, fact: Fact) -> None:
        def retry() -> None:
            # The primary may have tried again before.
            if self.state is not State.REPLICA_HEALED:
                self.reapply_as_replica(event, fact)

        self._later(RETRY_MS, retry)

    def start_watchdog(self, event: Event, fact: Fact) -> None:
        self._watchdog_generation += 1
        generation = self._watchdog_generation

        def bark() -> None:
            if generation == self._watchdog_generation:
                log.error("Partition [%d]: not healed in %d ms", self.shard.partition_id, self._watchdog_ms)
                self.fire(Event.WATCHDOG, Fact())

        self._timers.at(self._now.ms + self._watchdog_ms, bark)

    def stop_watchdog(self, event: Event, fact: Fact) -> None:
        self._watchdog_generation += 1

    # -- standings

    def store_own(self, event: Event, fact: Fact) -> None:
        if self.is_replica and self._begins_anew and self.copy.position != NOWHERE:
            self.copy.settle()
            try:
                self.copy.begin_anew()
            except OutOfStep as error:
                log.error("Partition [%d]: cannot be received anew: %s", self.shard.partition_id, error)
                self.reapply_later(event, fact)
        self.standings[self.links.own_id] = self._own_standing()

    def _own_standing(self) -> Standing:
        if self.shard.active:
            return Standing(last_position(self.shard.files), first_sync_point(self.shard.files))
        if self.copy.is_anew:
            return Standing(NOWHERE, NOWHERE)
        return Standing(self.copy.position, first_sync_point(self.shard.files))

    def store_replica(self, event: Event, fact: Fact) -> None:
        self.standings[fact.node_id] = Standing(fact.end, fact.sync_point)

    def store_primary(self, event: Event, fact: Fact) -> None:
        self._primary_sync_point = fact.sync_point

    def forget_replica(self, event: Event, fact: Fact) -> None:
        self.standings.pop(fact.node_id, None)
        self.healed.discard(fact.node_id)
        if self.stream is not None:
            self.stream.forget(fact.node_id)
        self.ask_replica_later(event, fact)

    def check_positions(self, event: Event, fact: Fact) -> None:
        if len(self.standings) >= self.quorum:
            self.fire(Event.QUORUM_REPLICA_SEQ)

    def find_highest(self, event: Event, fact: Fact) -> None:
        own_id = self.links.own_id
        highest_id = max(self.standings, key=lambda node_id: (self.standings[node_id].position, node_id == own_id))
        if highest_id == own_id:
            self.fire(Event.SELF_HIGHEST_SEQ)
        else:
            position, sync_point = self.standings[highest_id]
            self.fire(Event.REPLICA_HIGHEST_SEQ, Fact(node_id=highest_id, end=position, sync_point=sync_point))

    # -- the primary and how far replicas are

    def ask_replicas(self, event: Event, fact: Fact) -> None:
        for node_id in self.links.other_ids:
            self.ask_replica(node_id)

    def ask_replica(self, node_id: int) -> None:
        if not self.links.is_up(node_id):
            return
        position, sync_point = self._own_standing()

        def answered(answer: object) -> None:
            if isinstance(answer, ReplicaStateResponse):
                end = Position.of(answer.latest_sequence_number)
                sync_point = Position.of(answer.first_sync_point_after_rollover_sequence_number)
                self.fire(Event.REPLICA_STATE_RSPN, Fact(node_id=node_id, end=end, sync_point=sync_point))
            else:
                self.fire(Event.FAIL_REPLICA_STATE_RSPN, Fact(node_id=node_id))

        request = ReplicaStateRequest(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            latest_sequence_number=position.wire,
            first_sync_point_after_rollover_sequence_number=sync_point.wire,
        )
        self._ask(node_id, request, answered, STATE_TIMEOUT_MS)

    def ask_replica_later(self, event: Event, fact: Fact) -> None:
        def ask() -> None:
            follows = self.stream is not None and fact.node_id in self.stream.followers
            if not self.is_replica and not follows:
                self.ask_replica(fact.node_id)

        self._later(RETRY_MS, ask)

    def answer_replica(self, event: Event, fact: Fact) -> None:
        assert fact.asked is not None
        position, sync_point = self.standings[self.links.own_id]
        response = PrimaryStateResponse(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            latest_sequence_number=position.wire,
            first_sync_point_after_rollover_sequence_number=sync_point.wire,
        )
        self._answer(fact.asked, response)

    def refuse_as_no_primary(self, event: Event, fact: Fact) -> None:
        self.refuse(fact.asked, StatusCategory.REFUSED, ERROR_NOT_PRIMARY, "Not a primary")

    def refuse_as_primary(self, event: Event, fact: Fact) -> None:
        self.refuse(fact.asked, StatusCategory.REFUSED, ERROR_NOT_REPLICA, "Not a replica")

    def refuse_while_waiting(self, event: Event, fact: Fact) -> None:
        text = "Self replica waiting for PrimaryStateResponse"
        self.refuse(fact.asked, StatusCategory.REFUSED, ERROR_REPLICA_WAITING, text)

    # -- the primary heals itself

    def begin_anew_if_rolled_over(self, event: Event, fact: Fact) -> None:
        own = self.standings[self.links.own_id]
        if own.sync_point != fact.sync_point or own.position == NOWHERE:
            self._begin_primary_anew()

    def _begin_primary_anew(self) -> None:
        self.copy.settle()
        try:
            self.copy.begin_anew()
        except OutOfStep as error:
            log.error("Partition [%d]: cannot be received anew: %s", self.shard.partition_id, error)
            self._later(RETRY_MS, lambda: self.reapply_as_primary(Event.WATCHDOG, Fact()))
        self.standings[self.links.own_id] = Standing(NOWHERE, NOWHERE)

    def cut_newest_lease(self, event: Event, fact: Fact) -> None:
        """The replica that is ahead does not have this node's last records: they were never acknowledged."""
        ends = history(self.shard.files)
        if self.copy.is_anew or len(ends) < 2 or not self.copy.cut(ends[1]):
            self._begin_primary_anew()
        else:
            log.warning("Partition [%d]: cut back to %s", self.shard.partition_id, self.copy.position)
            self.standings[self.links.own_id] = self._own_standing()

    def pull(self, event: Event, fact: Fact) -> None:
        node_id = fact.node_id
        begin = self.standings[self.links.own_id].position
        receiving = self._receiving = Receiving(node_id, begin, fact.end, fact.sync_point, None)

        def answered(answer: object) -> None:
            if isinstance(answer, ReplicaDataResponse):
                complete = self._receiving is receiving and self.copy.position == fact.end
                self.fire(Event.REPLICA_DATA_RSPN_PULL if complete else Event.ERROR_RECEIVING_DATA_CHUNKS, fact)
            elif isinstance(answer, Status) and answer.code == ERROR_IRRECONCILABLE_DATA:
                self.fire(Event.IRRECONCILABLE_REPLICA_DATA_RSPN_PULL, fact)
            elif isinstance(answer, Status) and answer.category is StatusCategory.NOT_CONNECTED:
                self.fire(Event.CRASH_REPLICA_DATA_RSPN_PULL, Fact(node_id=node_id))
            else:
                self.fire(Event.FAIL_REPLICA_DATA_RSPN_PULL, Fact(node_id=node_id))

        self._ask(node_id, self._data_request(ReplicaDataType.PULL, begin, fact.end), answered, DATA_TIMEOUT_MS)

    def _data_request(self, kind: ReplicaDataType, begin: Position, end: Position) -> ReplicaDataRequest:
        return ReplicaDataRequest(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            replica_data_type=kind,
            begin_sequence_number=begin.wire,
            end_sequence_number=end.wire,
        )

    # -- the primary heals its replicas

    def open(self, event: Event, fact: Fact) -> None:
        """This node has all that a majority has: others can be healed from here."""
        self.stream = stream = Stream(self.shard, self.links)
        self.shard.before_rollover = self._before_rollover
        self.shard.after_rollover = stream.after_rollover

    def _before_rollover(self) -> None:
        assert self.stream is not None
        for node_id in self.stream.before_rollover():
            log.warning("Partition [%d]: node %d was left behind by a rollover", self.shard.partition_id, node_id)
            self._drop(node_id, NOWHERE)

    def send_to_replicas(self, event: Event, fact: Fact) -> None:
        for node_id in self.standings:
            if node_id != self.links.own_id:
                self._send_to(node_id)

    def send_to_replica(self, event: Event, fact: Fact) -> None:
        self._send_to(fact.node_id)

    def _send_to(self, node_id: int) -> None:
        stream = self.stream
        if stream is None:
            return
        files = self.shard.files
        position, sync_point = self.standings[node_id]
        verdict = judge(Kinship(history(files), first_sync_point(files), position, sync_point))
        log.info("Partition [%d]: node %d at %s: %s", self.shard.partition_id, node_id, position, verdict.case)
        self.healed.discard(node_id)
        start = offset_behind(files, verdict.begin)
        if verdict.cure is not Cure.PUSH or start is None:
            stream.forget(node_id)
            self._drop(node_id, verdict.begin if verdict.cure is Cure.CUT else NOWHERE)
            return
        end = stream.follow(node_id, position, start)

        def answered(answer: object) -> None:
            if isinstance(answer, ReplicaDataResponse):
                self.fire(Event.REPLICA_DATA_RSPN_PUSH, Fact(node_id=node_id, end=end))
            else:
                self.fire(Event.FAIL_REPLICA_DATA_RSPN_PUSH, Fact(node_id=node_id))

        self._ask(node_id, self._data_request(ReplicaDataType.PUSH, position, end), answered, DATA_TIMEOUT_MS)

    def _drop(self, node_id: int, begin: Position) -> None:
        """Have a replica drop what follows `begin`; the reference's drops everything. It then asks again."""
        request = self._data_request(ReplicaDataType.DROP, begin, last_position(self.shard.files))
        self._ask(node_id, request, _ignore, STATE_TIMEOUT_MS)

    def count_own(self, event: Event, fact: Fact) -> None:
        self.healed.add(self.links.own_id)

    def count_replica(self, event: Event, fact: Fact) -> None:
        self.healed.add(fact.node_id)
        if self.stream is not None:
            self.stream.has(fact.node_id, fact.end)

    def check_healed(self, event: Event, fact: Fact) -> None:
        if len(self.healed) >= self.quorum:
            self.fire(Event.QUORUM_REPLICA_DATA_RSPN)

    def activate(self, event: Event, fact: Fact) -> None:
        """Serve the shard. The replicas hear of it before its first record."""
        shard = self.shard
        if self.primary_lease_id <= self.copy.position.lease_id:
            # Its numbers may have been given to records that this node has lost: only a newer lease is safe.
            log.error("Partition [%d]: lease %d was written under before", shard.partition_id, self.primary_lease_id)
            self._later(RETRY_MS, lambda: self.reapply_as_primary(event, fact))
            return
        for node_id in self.links.other_ids:
            self._say_active(node_id)
        shard.copies_wanted = self.quorum
        self.on_restore(self.copy.recover())
        try:
            shard.activate(self.primary_lease_id)
        except Full as full:
            log.error("Partition [%d]: cannot be served: %s", shard.partition_id, full)
            self.on_passive()
            shard.deactivate()
            self._later(RETRY_MS, lambda: self.reapply_as_primary(event, fact))
            return
        self.copy.let_go()
        self.on_active()

    def say_active(self, event: Event, fact: Fact) -> None:
        self._say_active(fact.node_id)

    def _say_active(self, node_id: int) -> None:
        advisory = PrimaryStatusAdvisory(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            status=PrimaryStatus.ACTIVE,
        )
        self.requests.advise(node_id, ClusterMessage(choice=advisory))

    # -- the replica

    def ask_primary(self, event: Event, fact: Fact) -> None:
        assert self.primary_id is not None
        position, sync_point = self.standings[self.links.own_id]

        def answered(answer: object) -> None:
            if isinstance(answer, PrimaryStateResponse):
                sync_point = Position.of(answer.first_sync_point_after_rollover_sequence_number)
                self.fire(Event.PRIMARY_STATE_RSPN, Fact(sync_point=sync_point))
            else:
                self.fire(Event.FAIL_PRIMARY_STATE_RSPN)

        request = PrimaryStateRequest(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            latest_sequence_number=position.wire,
            first_sync_point_after_rollover_sequence_number=sync_point.wire,
        )
        self._ask(self.primary_id, request, answered, STATE_TIMEOUT_MS)

    def ask_primary_later(self, event: Event, fact: Fact) -> None:
        """The primary does not know yet, and will ask; or its question was lost."""

        def ask() -> None:
            up = self.primary_id is not None and self.links.is_up(self.primary_id)
            if self.state is State.REPLICA_HEALING and self._receiving is None and up:
                self.reapply_as_replica(event, fact)

        self._later(2 * RETRY_MS, ask)

    def answer_primary(self, event: Event, fact: Fact) -> None:
        assert fact.asked is not None
        position, sync_point = self.standings[self.links.own_id]
        response = ReplicaStateResponse(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            latest_sequence_number=position.wire,
            first_sync_point_after_rollover_sequence_number=sync_point.wire,
        )
        self._answer(fact.asked, response)

    def send_to_primary(self, event: Event, fact: Fact) -> None:
        """The primary wants records of this replica, which is ahead of it."""
        files = self.shard.files
        if fact.end != self.copy.position or self.copy.is_anew:
            self.refuse(fact.asked, StatusCategory.INVALID_ARGUMENT, ERROR_STORAGE_FAILURE, "End PSN mismatch")
            return
        start = offset_behind(files, fact.begin)
        if start is None:
            self.fire(Event.IRRECONCILABLE_DATA, fact)
            return
        done = lambda: self.fire(Event.DONE_SENDING_DATA_CHUNKS, fact)  # noqa: E731
        self.transfer = Transfer(self.shard, self.links, fact.node_id, start, done)

    def answer_pull(self, event: Event, fact: Fact) -> None:
        self._answer_data(fact.asked, ReplicaDataType.PULL, fact.begin, fact.end)

    def refuse_pull(self, event: Event, fact: Fact) -> None:
        if event is Event.IRRECONCILABLE_DATA:
            text = "Primary has irreconcilable data"
            self.refuse(fact.asked, StatusCategory.REFUSED, ERROR_IRRECONCILABLE_DATA, text)
        else:
            self.refuse(fact.asked, StatusCategory.REFUSED, ERROR_STORAGE_FAILURE, "Failed to send data chunks")

    def _answer_data(self, asked: Asked | None, kind: ReplicaDataType, begin: Position, end: Position) -> None:
        assert asked is not None
        response = ReplicaDataResponse(
            partition_id=self.shard.partition_id,
            primary_lease_id=self.primary_lease_id,
            replica_data_type=kind,
            begin_sequence_number=begin.wire,
            end_sequence_number=end.wire,
        )
        self._answer(asked, response)

    def drop(self, event: Event, fact: Fact) -> None:
        """Cut off what follows a position, or everything: then the old files stay until the new ones are whole."""
        if fact.begin == NOWHERE or self.copy.is_anew or not self.copy.cut(fact.begin):
            self._begins_anew = True
            log.warning("Partition [%d]: is received anew", self.shard.partition_id)
        else:
            log.warning("Partition [%d]: cut back to %s", self.shard.partition_id, self.copy.position)

    def answer_drop(self, event: Event, fact: Fact) -> None:
        self._answer_data(fact.asked, ReplicaDataType.DROP, fact.begin, fact.end)

    def receive(self, event: Event, fact: Fact) -> None:
        """The primary will send what follows `begin`."""
        self._receiving = Receiving(fact.node_id, fact.begin, fact.end, self._primary_sync_point, fact.asked)
        try:
            if fact.begin == NOWHERE != fact.end and not (self.copy.is_anew and self.copy.position == NOWHERE):
                self.copy.settle()
                self.copy.begin_anew()
            if fact.begin != self.copy.position:
                raise OutOfStep(f"the primary begins behind {fact.begin}, this node is at {self.copy.position}")
            self._check_received()
        except OutOfStep as error:
            self._not_received(error)

    def answer_push(self, event: Event, fact: Fact) -> None:
        assert self._receiving is not None
        self._answer_data(self._receiving.asked, ReplicaDataType.PUSH, self._receiving.begin, self._receiving.end)

    def refuse_push(self, event: Event, fact: Fact) -> None:
        asked = self._receiving.asked if self._receiving else None
        self.refuse(asked, StatusCategory.REFUSED, ERROR_STORAGE_FAILURE, "Failed to receive data chunks")

    def answer_push_or_reapply(self, event: Event, fact: Fact) -> None:
        if fact.end == self.copy.position:
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
            for message in iter_storage(received.data, received.start, received.end):
                self.copy.write(message)
            if self.copy.position > receiving.end:
                raise OutOfStep(f"{self.copy.position} is behind {receiving.end}, which was to be the last")
            self._check_received()
        except OutOfStep as error:
            self._not_received(error)
        finally:
            self.copy.end_event()

    def _check_received(self) -> None:
        receiving = self._receiving
        assert receiving is not None
        if self.copy.position == receiving.end:
            self.copy.complete(receiving.sync_point)
            if receiving.asked is not None:
                self.fire(Event.DONE_RECEIVING_DATA_CHUNKS)

    def _not_received(self, error: OutOfStep) -> None:
        log.error("Partition [%d]: healing fails: %s", self.shard.partition_id, error)
        self.fire(Event.ERROR_RECEIVING_DATA_CHUNKS)

    def buffer(self, event: Event, fact: Fact) -> None:
        received = fact.received
        assert received is not None
        self._buffered.append(bytes(received.data[received.start : received.end]))

    def clear_buffered(self, event: Event, fact: Fact) -> None:
        self._buffered.clear()

    def write_buffered(self, event: Event, fact: Fact) -> None:
        buffered, self._buffered = self._buffered, []
        for body in buffered:
            self._write_live(memoryview(body), 0, len(body))

    def write_live(self, event: Event, fact: Fact) -> None:
        assert fact.received is not None
        self._write_live(*fact.received)

    def _write_live(self, data: memoryview, start: int, end: int) -> None:
        copy = self.copy
        try:
            for message in iter_storage(data, start, end):
                copy.write(message)
                if message.flags & _RECEIPT_REQUESTED:
                    self.receipt_due = copy.position
        except OutOfStep as error:
            log.error("Partition [%d]: a record of the primary does not fit: %s", self.shard.partition_id, error)
            self.fire(Event.ISSUE_LIVESTREAM)
        finally:
            copy.end_event()


def _nothing() -> None:
    """Nobody follows."""


def _ignore(value: object) -> None:
    """Nobody follows, or the answer does not matter."""
