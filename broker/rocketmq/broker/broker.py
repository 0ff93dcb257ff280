"""The broker: assigns each request to the part that carries it out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from broker.common.faults import Faults
from broker.common.kept import Keeper
from broker.rocketmq.access.guard import AccessDenied, Guard
from broker.rocketmq.access.requests import AccessRequests
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.administration.administration import Administration
from broker.rocketmq.administration.asking import ConsumerQuestions
from broker.rocketmq.administration.inspection import Inspection
from broker.rocketmq.administration.queries import Queries
from broker.rocketmq.administration.registration import Nameservers
from broker.rocketmq.administration.retention import FileRetention, RetentionLimits
from broker.rocketmq.administration.upkeep import Upkeep
from broker.rocketmq.broker.configuration import BrokerConfiguration, ConfiguredParts
from broker.rocketmq.consuming.consumers import ConsumerRequests
from broker.rocketmq.consuming.lite.placing import LitePlaces
from broker.rocketmq.consuming.lite.service import LiteService
from broker.rocketmq.consuming.pop.assignments import AssignmentRequests
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.consuming.pop.revive_log import REVIVE_GROUP
from broker.rocketmq.consuming.pop.service import PopService
from broker.rocketmq.consuming.progress import Progress
from broker.rocketmq.consuming.pulling import Puller
from broker.rocketmq.consuming.sql import compile_sql
from broker.rocketmq.consuming.unconsumed import first_unconsumed
from broker.rocketmq.delays.levels import Delays
from broker.rocketmq.delays.timers import TimerMessages
from broker.rocketmq.remoting.calls import Calls
from broker.rocketmq.remoting.long_answers import LongAnswers
from broker.rocketmq.remoting.requests import Handler, Refused, Request, failure, unstored
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.sending.arrivals import Arrivals
from broker.rocketmq.sending.plain_sending import PlainSender
from broker.rocketmq.sending.replies import Replies
from broker.rocketmq.sending.sending import Sender
from broker.rocketmq.sending.sending_back import SendingBack
from broker.rocketmq.sending.transactions import Transactions, TransactionTimes
from broker.rocketmq.settings import Settings
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables import names
from broker.rocketmq.tables.clients import Clients
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.locks import Locks
from broker.rocketmq.tables.names import DELAY_TOPIC, TIMER_TOPIC
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.progress_files import ProgressFiles
from broker.rocketmq.tables.routes import FindQueues
from broker.rocketmq.tables.services import Services
from broker.rocketmq.tables.statistics import Statistics
from broker.rocketmq.tables.topics import Topics
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import TimerCheckpoint
from formats.rocketmq.remoting.bodies.delays import DelayOffsets
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.topic_names import TRANSACTION_GROUP

__all__ = ["Broker", "Given", "State", "World"]

log = logging.getLogger("broker.rocketmq")

OFFSETS_MS: Final = 5_000
SECOND_MS: Final = 1_000
EXPIRY_MS: Final = 10_000


def set_back(services: Services) -> bool:
    """Set positions after the end of a queue back to it; return whether there were any.

    After a loss of power, a position may count messages that no longer exist. New messages reuse their offsets.
    """
    store, offsets = services.store, services.offsets
    found = False
    for topic, group, queue_id, processed in _positions(services):
        offset, end = offsets.get(topic, group, queue_id), store.end(topic, queue_id) - processed
        if offset is not None and offset > end:
            offsets.commit_own(topic, group, queue_id, end)
            found = True
    return found


def _positions(services: Services) -> Iterator[tuple[str, str, int, int]]:
    """Yield topic, group and queue of each position, and by how many processed messages it is too low: 0 or 1."""
    yield names.HALF_TOPIC, TRANSACTION_GROUP, 0, 0
    yield names.OP_TOPIC, TRANSACTION_GROUP, 0, 0
    for queue_id in range(services.options.revive_queues):
        yield names.revive_topic(services.options.cluster), REVIVE_GROUP, queue_id, 1


class World(NamedTuple):
    """The services that a broker needs.

    These are the time of day, a random number below another, an id, files for offsets and modes, how full the disk is,
    and the queues of a topic by its nameserver. `flush_log` flushes the log, where acknowledged messages must be on the
    disk. `keeper` writes the files of tables.
    """

    wall_ms: Callable[[], int]
    choose: Callable[[int], int]
    make_unique_id: Callable[[], str]
    flush_log: Callable[[], None]
    keep_offsets: Callable[[bytes], None]
    keep_delay_offsets: Callable[[bytes], None]
    keep_timer_checkpoint: Callable[[bytes], None]
    keep_orders: Callable[[bytes], None]
    keep_request_modes: Callable[[bytes], None]
    find_queues: FindQueues
    disk_used: Callable[[], float]
    keeper: Keeper | None = None


class Given(NamedTuple):
    """The content of a master's progress files: its delayed messages, its timers and its POP consumers."""

    delay_offsets: DelayOffsets = DelayOffsets()
    timer_checkpoint: TimerCheckpoint | None = None
    request_modes: bytes = b""


class State(NamedTuple):
    """The stores and tables of a broker, its settings for administrators, and its access control."""

    options: BrokerOptions
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    orders: Orders
    settings: Settings
    access: AccessTables
    guard: Guard
    given: Given = Given()
    times: TransactionTimes = TransactionTimes()
    limits: RetentionLimits = RetentionLimits()


class Broker:
    """A broker; see `remoting.session.Service` and `node.Part`."""

    def __init__(
        self,
        state: State,
        world: World,
        faults: Faults,
        nameservers: Nameservers,
        role: BrokerRole | None = None,
    ) -> None:
        options, store, topics, groups, offsets = state[:5]
        role = role or BrokerRole(ReplicationOptions(), options, lambda: store.log.end)
        self._role = role
        self._state = state
        self._world = world
        self._guard = state.guard
        self._faults = faults
        self._nameservers = nameservers
        self._offsets = offsets
        self._adopt_tables()
        clients = Clients()
        self._booted_ms = booted_ms = world.wall_ms()
        self._statistics = statistics = Statistics(options.cluster, booted_ms)
        services = self._services = Services(options, topics, groups, offsets, clients, store, statistics)
        self._puller = Puller(services, self._failed)
        self._answers = LongAnswers(services.scheduler, self._failed)
        self._arrivals = Arrivals(store, self._puller, statistics)
        self._arrivals.tell(self._arrived)
        sending_back = SendingBack(services, locks := Locks(), self._arrivals, world.choose, state.guard.check_record)
        places, choose = LitePlaces(store, services.leaving), world.choose
        self._sender = Sender(options, topics, self._arrivals, sending_back, choose, world.make_unique_id, places)
        self._plain = PlainSender(options, topics, self._arrivals, self._sender, world.wall_ms)
        self._consumers = ConsumerRequests(services, locks)
        self._calls = Calls()
        replies = Replies(options, clients, self._calls, self._sender)
        self.retention = FileRetention(store, state.limits, world.disk_used, self._unconsumed)
        self.copied = self._arrivals.arrived
        parts = (
            role,
            self._consumers,
            sending_back,
            replies,
            Queries(store, state.guard.check_record),
            Administration(services, lambda topic: self._lite.removed(topic)),
            statistics,
            AccessRequests(state.access),
            Progress(services, self._answers),
            ConsumerQuestions(services, self._calls, state.guard.check_record),
            Upkeep(services, self.retention),
        )
        self._handlers: dict[int, Handler] = {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
        }
        for part in parts:
            self._handlers.update(part.handlers)
        self._make_givers(state.given, state.times)
        self._has_due = False
        self._kept_ms = self._expired_ms = self._looked_ms = world.wall_ms()

    def _adopt_tables(self) -> None:
        state, world = self._state, self._world
        self.keeper = world.keeper or Keeper()
        self.keeper.adopt(state.topics.kept.file, state.groups.kept.file, *state.access.files, state.settings.file)
        state.groups.options = state.options
        self._progress = ProgressFiles(
            state.offsets, world.keep_offsets, state.orders, world.keep_orders, self.keeper, world.flush_log
        )

    def _make_givers(self, given: Given, times: TransactionTimes) -> None:
        options, state, world, services = self._state.options, self._state, self._world, self._services
        state.guard.is_group = lambda name: name in state.groups.table
        if not self._role.is_slave and set_back(services):
            # Before a message gets an offset that a position counts as processed.
            self.keep_offsets()
            self._progress.write(world.wall_ms())
        self._delays = Delays(
            options.delay_levels_ms,
            state.topics,
            state.store,
            self._arrivals,
            given.delay_offsets,
            self._keeper(world.keep_delay_offsets),
        )
        self._timers = TimerMessages(
            services, self._arrivals, given.timer_checkpoint, self._keeper(world.keep_timer_checkpoint)
        )
        if not self._role.is_slave:
            # Before a message gets an offset that a file counts as done.
            self._keep_delays(world.wall_ms())
        self._transactions = Transactions(services, times, self._arrivals, state.guard)
        self._pop = PopService(services, state.orders, self._arrivals, world.choose, self._failed)
        acks, now_ms = self._pop.handlers, world.wall_ms()
        self._lite = LiteService(services, world.choose, self._failed, acks, world.find_queues, now_ms)
        configured = ConfiguredParts(
            state.topics, state.groups, self._transactions, self.retention, self._plain, state.guard, self._role
        )
        assignments = AssignmentRequests(services, world.find_queues, given.request_modes, world.keep_request_modes)
        self.keeper.adopt(assignments.file)
        parts = (
            self._timers,
            self._transactions,
            self._pop,
            self._lite,
            assignments,
            BrokerConfiguration(options, state.settings, configured, self._booted_ms),
            Inspection(
                services,
                self._delays,
                self._booted_ms,
                state.orders.forget,
                self.retention,
                lambda: self._timers.waiting,
                self._answers,
            ),
        )
        for part in parts:
            self._handlers.update(part.handlers)

    def _unconsumed(self, end: int) -> Iterator[str]:
        levels = {level - 1: offset for level, offset in self._delays.offsets.items()}
        return first_unconsumed(self._services, [(DELAY_TOPIC, levels), (TIMER_TOPIC, {0: self._timers.first})], end)

    def change_role(self, given: Given) -> None:
        """Start over in the present role: a master continues from the store and the files."""
        self._pop.end_waits()
        self._lite.end_waits()
        self._transactions.end()
        self._has_due = False
        self._make_givers(given, self._transactions.times)

    def _keeper(self, keep: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Make the writer of a progress file, which flushes the log with the results first.

        After a loss of power, messages that the file counts as processed would be missing otherwise.
        """

        def keep_after_log(data: bytes) -> None:
            self._world.flush_log()
            keep(data)

        return keep_after_log

    # -- requests

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Store the plain messages at the front; leave messages that must be checked to `receive`."""
        if self._guard.is_on or not self._role.takes_plain:
            return at
        return self._plain.take(data, at, end, session)

    def receive(self, frame: Frame, session: Session) -> None:
        if frame.is_response:
            self._calls.answered(session, frame)
            return
        handler = self._handlers.get(frame.code)
        answer: Frame | None
        if handler is None:
            text = f" request type {frame.code} not supported"
            answer = failure(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
        else:
            try:
                if self._guard.is_on:
                    self._guard.check(frame, session.host.address)
                answer = self._role.refuse(frame) or handler(Request(frame, session, self._world.wall_ms()))
            except AccessDenied as denied:
                session.doubt()
                log.info("%s: request %d is denied: %s", session.description, frame.code, denied)
                answer = failure(ResponseCode.NO_PERMISSION, str(denied))
            except Refused as refused:
                answer = failure(refused.code, refused.text)
            except FormatError as error:
                answer = failure(ResponseCode.SYSTEM_ERROR, str(error))
            except (OSError, DiskFull) as error:
                log.error("request %d failed, as its change cannot be stored: %s", frame.code, error)
                answer = unstored(error)
        touched = self.keeper.take_touched()
        if answer is None:
            return
        if touched:
            self.keeper.when_stored(touched, partial(self._stored, frame._replace(body=b""), session, answer))
        elif not self._role.hold(frame, session, answer):
            session.answer(frame, answer)

    def _stored(self, frame: Frame, session: Session, answer: Frame, error: OSError | None) -> None:
        """Send an answer that waited for a table: the change is on the disk, or was undone."""
        if error is not None:
            log.error("request %d failed, as its change cannot be stored: %s", frame.code, error)
            answer = unstored(error)
        if not self._role.hold(frame, session, answer):
            session.answer(frame, answer)

    def _send(self, request: Request) -> Frame:
        frame, peer, now_ms = request
        return self._plain.send(frame, peer, now_ms) or self._sender.send(frame, peer.host, now_ms)

    def _pull(self, request: Request) -> None:
        answer = partial(request.peer.answer, request.frame.bare)
        self._puller.pull(request.fields, request.peer, request.now_ms, answer)

    def _arrived(self, topic: str, queue_id: int, now_ms: int) -> None:
        self._pop.arrived(topic, queue_id, now_ms)
        self._lite.arrived(topic, queue_id, now_ms)

    def _failed(self, connection: object, error: Exception) -> None:
        assert isinstance(connection, Session)
        self._faults.end_session(connection, error)

    def disconnected(self, session: Session) -> None:
        self._plain.disconnected(session)
        self._puller.disconnected(session)
        self._answers.disconnected(session)
        self._pop.disconnected(session)
        self._lite.disconnected(session)
        self._calls.disconnected(session)
        self._consumers.disconnected(session)
        self._role.disconnected(session)

    @property
    def services(self) -> Services:
        return self._services

    @property
    def lacks(self) -> str | None:
        """The reason not to serve clients, in one line for people, if any."""
        if self._nameservers.is_silent:
            return "this broker waits for its role, and no nameserver knows it yet"
        return self._role.lacks

    # -- the clock

    def start(self) -> None:
        """Register with this process's nameserver; with others as soon as they are connected."""
        # Build the parser of expressions now: the first expression would delay other requests.
        compile_sql("TRUE")
        self._nameservers.register(self._world.wall_ms())

    def end_step(self) -> bool:
        """Answer requests that wait for the step's messages; send the nameservers its changes.

        Return True if there is more.
        """
        now_ms = self._world.wall_ms()
        if self._has_due:
            self._has_due = self._give_out(now_ms)
        self._role.advance()
        self._arrivals.end_step(now_ms)
        scheduler, has_more = self._services.scheduler, self._has_due
        if scheduler.run(now_ms):
            # Answers may have stored messages, such as checkpoints.
            self._arrivals.end_step(now_ms)
            has_more = has_more or scheduler.has_more
        has_more = self._consumers.end_step() or has_more
        has_more = self._progress.end_step(now_ms) or has_more
        self.keeper.end_step()
        return self._nameservers.end_step(now_ms) or has_more

    def tick(self) -> None:
        now_ms = self._world.wall_ms()
        self._nameservers.tick(now_ms)
        if not self._role.is_slave:
            self._tick_as_master(now_ms)
        self.retention.tick(now_ms)
        if _is_due(now_ms, self._looked_ms, SECOND_MS):
            self._looked_ms = now_ms
            self._puller.expire(now_ms)
            self._calls.expire(now_ms)
            self._statistics.tick(now_ms)
        if _is_due(now_ms, self._expired_ms, EXPIRY_MS):
            self._expired_ms = now_ms
            self._consumers.expire(now_ms)
        if _is_due(now_ms, self._kept_ms, OFFSETS_MS):
            self._kept_ms = now_ms
            self.keep_offsets()

    def _tick_as_master(self, now_ms: int) -> None:
        """Do due work that stores messages, which slaves get from their master."""
        self._has_due = self._give_out(now_ms)
        self._pop.tick(now_ms)
        self._lite.tick(now_ms)
        self._delays.tick(now_ms)
        self._timers.tick(now_ms)
        self._transactions.tick(now_ms)

    def _give_out(self, now_ms: int) -> bool:
        """Store due messages in their destinations; return True if there is more."""
        has_more = self._delays.give_out(now_ms)
        is_behind = self._timers.give_out(now_ms)
        # After the timers: notes of popped messages enter their log as timer messages.
        return self._pop.revive(now_ms, is_behind=is_behind) or is_behind or has_more

    def keep_offsets(self) -> None:
        """Start to write the offsets and the state of ordered consumption, if changed."""
        self._progress.begin(with_orders=not self._role.is_slave)

    def close(self) -> None:
        """Write the files, and the pending notes in the store."""
        now_ms = self._world.wall_ms()
        if not self._role.is_slave:
            self._transactions.note(now_ms)
        self.keep_offsets()
        self._progress.write(now_ms)
        self.keeper.finish()
        if not self._role.is_slave:
            self._keep_delays(now_ms)

    def _keep_delays(self, now_ms: int) -> None:
        self._delays.keep(now_ms)
        self._timers.keep(now_ms)

    def leave(self) -> None:
        """Unregister, and send the answers that wait for a table."""
        self.keeper.finish()
        self._nameservers.leave(self._world.wall_ms())


def _is_due(now_ms: int, last_ms: int, period_ms: int) -> bool:
    """Return whether a period is over, or the clock was set back."""
    return not 0 <= now_ms - last_ms < period_ms
