"""A broker that is master and slave in turns: what it writes, tells and refuses, and who waits for whom."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.remoting.requests import Request
from broker.rocketmq.replication.control.appointments import Appointment, InSync
from broker.rocketmq.replication.control.controlled import Controlled, RoleChange
from broker.rocketmq.replication.control.membership import ControlledMembership
from broker.rocketmq.replication.control.terms import Log, TermWorld
from broker.rocketmq.replication.metadata import MasterMetadata
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.epoch_slave import EpochSlaveStream
from broker.rocketmq.replication.streams.epochs import EpochBook
from broker.rocketmq.replication.waiting import WaitingSenders
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.files.identity import BrokerIdentity
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.bodies.replication import EPOCH_CACHE, HA_RUNTIME, EpochSpan
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.replicating import ExchangeHaInfoResponse, NotifyBrokerRoleChangedRequest
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.replication.role_rig import STORED, Sender, sent
from tests.broker.rocketmq.replication.streams.ends import Clock, pump
from tests.broker.rocketmq.store.copying_rig import log_bytes
from tests.broker.rocketmq.store.message_store_rig import SMALL, bodies, make_message

HOST = Host("10.0.0.9", 10912)

Dialed = tuple[str, Callable[[str], ReplicationSession], Callable[[str], None]]


class Controllers:
    """Controllers that answer nothing: tests say who is master. `asked` are the codes of the questions."""

    has_leader = False

    def __init__(self, asked: list[int]) -> None:
        self.asked = asked

    def tell(self, request: Frame) -> None: ...

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        self.asked.append(request.code)

    def tick(self, now_ms: int) -> None: ...
    def close(self) -> None: ...


class Link:
    """A connection to a master's broker. `asked` are the questions, with who waits for the answers."""

    def __init__(self) -> None:
        self.is_connected = True
        self.address: str | None = None
        self.asked: list[tuple[Frame, Callable[[Frame | None], None]]] = []

    def follow(self, address: str) -> None:
        self.address = address

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        self.asked.append((request, done))

    def tick(self, now_ms: int) -> None: ...

    def close(self) -> None:
        self.address = None


class NoMetadata:
    def tick(self, now_ms: int) -> None: ...
    def saw(self, topic: str) -> None: ...


@dataclass
class Broker:
    """A broker between a controller and others of its name."""

    broker_id: int
    clock: Clock
    options: ReplicationOptions = field(
        default_factory=lambda: ReplicationOptions(
            is_controlled=True, all_in_sync=True, in_sync_replicas=2, slave_timeout_ms=3_000
        )
    )
    writes: list[bytes] = field(default_factory=list)
    dialed: list[Dialed] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    changes: list[tuple[Role, int]] = field(default_factory=list)
    epochs_begun: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    is_disk_full: bool = False
    # How much of the log is on the disk; None where nobody waits for that.
    on_disk: int | None = None
    count: int = 0

    def __post_init__(self) -> None:
        self.folder = MemoryFolder(chunk=64)
        self.store: MessageStore = open_store(self.folder, SMALL, lambda ms: f"{ms:017d}")
        self.book = EpochBook(b"", self._write)
        self.broker = BrokerOptions(ha_address=f"10.0.0.{self.broker_id}:10912")
        shared = Log(self.store, self.book, self._reach)
        self.controlled = Controlled(shared, self.options, self.broker)
        waiting = WaitingSenders(self.options, self.controlled, lambda: self.clock.ms)
        self.controlled.waiting = waiting
        self.role = BrokerRole(
            self.options,
            self.broker,
            lambda: self.store.log.end,
            waiting,
            self.controlled.status,
            self.controlled.in_sync,
            self.controlled.advance,
            self.controlled.handlers,
        )
        self.controllers = Controllers(self.asked)
        self.member = ControlledMembership(
            self.broker,
            self.options,
            self.controllers,
            cast(Any, self),
            self.controlled,
            lambda: self.clock.ms,
            lambda: self.clock.ms,
        )
        self.controlled.join(self.member, self._change(), self._world())

    @property
    def known(self) -> Any:
        return BrokerIdentity("DefaultCluster", "broker-a", self.broker_id)

    def _reach(self) -> int:
        return self.store.log.end if self.on_disk is None else self.on_disk

    def _write(self, data: bytes) -> None:
        if self.is_disk_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.writes.append(data)

    def _change(self) -> RoleChange:
        return RoleChange(
            lambda: None,
            self.epochs_begun.append,
            lambda: self.changes.append((self.options.role, self.broker.broker_id)),
        )

    def _world(self) -> TermWorld:
        def make_link() -> Outgoing:
            self.links.append(Link())
            return cast(Outgoing, self.links[-1])

        return TermWorld(
            lambda *dialed: self.dialed.append(dialed),
            self._open,
            make_link,
            lambda link: cast(MasterMetadata, NoMetadata()),
            lambda *arrived: None,
            lambda: self.clock.ms,
            lambda: self.clock.ms,
        )

    def _open(self, address: str, make: Callable[[ReplicationSession], EpochSlaveStream]) -> ReplicationSession:
        return ReplicationSession(1, HOST, self.options, lambda session: None, lambda: self.clock.ms, make)

    # -- what comes

    def lead(self, epoch: int, *members: int) -> bool:
        return self.controlled.lead(epoch, InSync(frozenset(members or {self.broker_id}), epoch * 10))

    def follow(self, epoch: int, master: int) -> None:
        address = f"10.0.0.{master}:10911"
        self.controlled.follow(Appointment(epoch, master, address, InSync(frozenset({master}), epoch * 10)))

    def accept(self) -> ReplicationSession:
        """Make the session of a slave that connects."""
        return ReplicationSession(
            2, HOST, self.options, lambda session: None, lambda: self.clock.ms, self.controlled.make_end
        )

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            Writer(self.store).put(make_message(self.count), 1000 + self.count)
            self.count += 1
        self.end_step()

    def end_step(self) -> None:
        self.controlled.advance()
        self.controlled.end_step()

    def ask(self, code: RequestCode, **fields: str) -> Frame:
        answer = self.controlled.handlers[code](Request(Frame(code, 1, ext_fields=fields), Sender(), 0))
        assert answer is not None
        return answer

    def send(self) -> list[int]:
        """Send a message; the codes of the answers, as they come."""
        sender = Sender()
        refused = self.role.refuse(sent())
        if refused is not None:
            return [refused.code]
        self.put()
        if not self.role.hold(sent(), sender, STORED):
            return [STORED.code]
        return AnswerCodes(sender)


class AnswerCodes(list[int]):
    """The codes of the answers that a sender has by now."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __eq__(self, other: object) -> bool:
        return [answer.code for answer in self._sender.answers] == other


def group(count: int) -> tuple[Broker, ...]:
    clock = Clock()
    return tuple(Broker(number + 1, clock) for number in range(count))


def join(master: Broker, slave: Broker) -> tuple[ReplicationSession, ReplicationSession]:
    """Have a slave ask its master where the stream is, and connect to it."""
    slave.controlled.tick()
    _, done = slave.links[-1].asked.pop(0)
    done(master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO))
    address, connected, _ = slave.dialed.pop(0)
    assert address == master.broker.ha_address
    here, there = master.accept(), connected(address)
    pump(here, there)
    return here, there


def trio(**changes: Any) -> tuple[tuple[Broker, ...], list[tuple[ReplicationSession, ReplicationSession]]]:
    """Make a master with two slaves, all in sync."""
    brokers = group(3)
    for name, value in changes.items():
        setattr(brokers[0].options, name, value)
    brokers[0].lead(1)
    links = []
    for slave in brokers[1:]:
        slave.follow(1, 1)
        links.append(join(brokers[0], slave))
    brokers[0].controlled.appoint(InSync(frozenset({1, 2, 3}), 11))
    return brokers, links


# -- roles


def test_broker_is_master_only_once_a_controller_says_so() -> None:
    (broker,) = group(1)
    assert (broker.options.role, broker.role.takes_plain, broker.changes) == (Role.SLAVE, False, [])
    assert broker.send() == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert broker.accept().reason == "this broker is no master"
    assert broker.role.handlers[RequestCode.GET_BROKER_HA_STATUS](Request(Frame(907, 1), Sender(), 0)) is not None


def test_master_begins_its_epoch_at_the_end_of_its_log() -> None:
    (broker,) = group(1)
    broker.lead(1)
    broker.put(2)
    end = broker.store.log.end
    broker.lead(4)
    assert broker.book.entries == [EpochEntry(1, 0), EpochEntry(4, end)]
    assert broker.epochs_begun == [1, 4]
    assert broker.changes == [(Role.SYNC_MASTER, 0)] * 2
    assert bodies(broker.store) == [0, 1]


def test_master_of_an_epoch_that_cannot_be_written_is_none() -> None:
    (broker,) = group(1)
    broker.is_disk_full = True
    assert not broker.lead(1)
    assert (broker.options.role, broker.changes) == (Role.SLAVE, [])
    broker.is_disk_full = False
    assert broker.lead(1)


def test_slave_asks_its_master_for_the_stream_until_it_is_told() -> None:
    master, slave = group(2)
    slave.follow(1, 1)
    slave.controlled.tick()
    slave.controlled.tick()
    (link,) = slave.links
    ((_, done),) = link.asked
    # It does not know yet that it is master.
    done(master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO))
    assert slave.dialed == []
    link.asked.clear()
    master.lead(1)
    slave.clock.ms += 1_000
    join(master, slave)
    assert slave.changes == [(Role.SLAVE, 2)]


@pytest.mark.parametrize("address", ["nowhere", "", "host:99999"])
def test_address_of_a_stream_that_is_none_is_not_dialed(address: str) -> None:
    _, slave = group(2)
    slave.follow(1, 1)
    slave.controlled.tick()
    _, done = slave.links[0].asked.pop(0)
    done(Frame(0, 0, ext_fields={"masterHaAddress": address}))
    assert slave.dialed == []


def test_roles_change_to_and_fro_and_the_logs_become_the_same() -> None:
    (one, two, _), _ = trio()
    one.put(3)
    # One goes on by itself, and two is master of the next epoch without what one has.
    two.lead(2)
    two.put(2)
    one.put(4)
    one.follow(2, 2)
    assert one.accept().reason == "this broker is no master"
    join(two, one)
    assert log_bytes(one.store) == log_bytes(two.store)
    assert one.book.entries == two.book.entries
    one.lead(3)
    one.put(1)
    two.follow(3, 1)
    here, there = join(one, two)
    one.controlled.appoint(InSync(frozenset({1, 2}), 31))
    one.put(1)
    pump(here, there)
    one.end_step()
    pump(here, there)
    assert log_bytes(one.store) == log_bytes(two.store)
    assert one.store.readable_end == two.store.readable_end == one.store.log.end
    assert [role for role, _ in one.changes] == [Role.SYNC_MASTER, Role.SLAVE, Role.SYNC_MASTER]


def test_stream_of_the_old_master_is_closed() -> None:
    (one, two, three), links = trio()
    one.follow(2, 2)
    assert [here.reason for here, _ in links] == ["another broker is master"] * 2
    two.lead(2)
    assert links[0][1].finished
    three.follow(2, 2)
    assert links[1][1].finished
    assert [link.address for link in three.links] == [None, "10.0.0.2:10911"]


@pytest.mark.parametrize("is_over", [False, True])
def test_slave_that_leaves_is_out_of_sync_by_the_word_of_its_master(is_over: bool) -> None:
    (one, *_), links = trio()
    assert one.controlled._master is not None
    # The answer to what was proposed when they came.
    one.controlled._master._answered(InSync(frozenset({1, 2, 3}), 12), False)
    one.asked.clear()
    if is_over:
        one.follow(2, 2)
    links[0][0].end()
    assert one.asked == ([] if is_over else [RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET])


def test_slave_of_the_same_master_in_another_epoch_goes_on() -> None:
    (one, two, _), links = trio()
    one.lead(2)
    two.follow(2, 1)
    assert not links[0][1].finished
    one.put(1)
    pump(*links[0])
    assert two.book.entries == one.book.entries == [EpochEntry(1, 0), EpochEntry(2, 0)]


def test_word_of_another_master_has_the_controllers_asked_and_changes_nothing_by_itself() -> None:
    (broker,) = group(1)
    # As it is once it has registered.
    registered = Frame(0, 0, body=SYNC_STATE_SET.write(SyncStateSet()))
    assert broker.member._take_registered(registered)
    broker.controllers.has_leader = True
    for epoch in ((1 << 31) - 1, 5):
        header = NotifyBrokerRoleChangedRequest("127.0.0.1:1", epoch, 6, 1)
        request = Frame(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, 1, ext_fields=write_header(header))
        request = request._replace(body=SYNC_STATE_SET.write(SyncStateSet([1], 6)))
        answer = broker.controlled.handlers[request.code](Request(request, Sender(), 0))
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
    assert (broker.member.epoch, broker.options.role, broker.book.entries) == (0, Role.SLAVE, [])
    assert broker.asked == [RequestCode.CONTROLLER_ELECT_MASTER]


# -- what administrators and slaves are shown


def test_epochs_and_streams_are_shown() -> None:
    (one, two, _), links = trio()
    one.put(1)
    end = one.store.log.end
    one.lead(3, 1, 2, 3)
    shown = EPOCH_CACHE.read(one.ask(RequestCode.GET_BROKER_EPOCH_CACHE).body)
    assert shown.epoch_list == [EpochSpan(1, 0, end), EpochSpan(3, end)]
    assert (shown.broker_name, shown.broker_id, shown.max_offset) == ("broker-a", 0, end)
    for link in links:
        pump(*link)
    status = one.role.handlers[RequestCode.GET_BROKER_HA_STATUS](Request(Frame(907, 1), Sender(), 0))
    assert status is not None
    runtime = HA_RUNTIME.read(status.body)
    assert (runtime.master, runtime.in_sync_slave_nums, runtime.master_commit_log_max_offset) == (True, 2, end)
    assert [(each.slave_ack_offset, each.in_sync) for each in runtime.ha_connection_info] == [(end, True)] * 2
    assert two.controlled.status().ha_client_runtime_info.master_addr == "10.0.0.1:10912"
    answer = two.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert read_header(ExchangeHaInfoResponse, answer.ext_fields) == ExchangeHaInfoResponse()


# -- the table of who waits for whom


def test_sender_waits_for_all_that_are_in_sync() -> None:
    (one, *_), links = trio()
    codes = one.send()
    pump(*links[0])
    assert codes == []
    pump(*links[1])
    assert codes == [ResponseCode.SUCCESS]


def test_sender_is_told_when_the_time_is_over_and_answered_once_the_silent_are_out_of_sync() -> None:
    (one, *_), _ = trio(behind_ms_max=6_000, check_ms=2_000)
    codes = one.send()
    one.clock.ms += 3_000
    one.controlled.tick()
    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    assert bodies(one.store) == []
    one.controlled.appoint(InSync(frozenset({1}), 12))
    assert bodies(one.store) == [0]
    assert one.send() == [ResponseCode.SUCCESS]


def test_sender_is_refused_while_too_few_are_in_sync() -> None:
    (one, *_), links = trio(in_sync_replicas_min=2)
    codes = one.send()
    for link in links:
        pump(*link)
    assert codes == [ResponseCode.SUCCESS]
    one.controlled.appoint(InSync(frozenset({1}), 12))
    end = one.store.log.end
    refused = one.role.refuse(sent())
    assert refused is not None
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    assert one.store.log.end == end
    # Sends that do not wait are not refused either.
    assert one.role.refuse(sent("WAIT\x01false\x02")) is None
    assert not one.role.takes_plain


def test_message_is_not_acknowledged_once_too_few_are_in_sync_that_was_taken_before() -> None:
    (one, *_), _ = trio(in_sync_replicas_min=2)
    codes = one.send()
    one.controlled.appoint(InSync(frozenset({1}), 12))
    assert (codes, bodies(one.store)) == ([], [0])
    one.clock.ms += 3_000
    one.controlled.tick()
    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT]


def test_message_that_a_lone_master_has_yet_to_flush_waits_for_who_comes_in_meanwhile() -> None:
    one, two = group(2)
    one.lead(1)
    one.put()
    one.on_disk = one.store.log.end
    codes = one.send()
    assert codes == []
    two.follow(1, 1)
    link = join(one, two)
    assert one.asked == [RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET]
    # The slave may be elected from here on, and the message is not there.
    one.on_disk = one.store.log.end
    one.end_step()
    assert codes == []
    pump(*link)
    assert codes == [ResponseCode.SUCCESS]


def test_lone_master_acknowledges_a_message_once_it_is_flushed() -> None:
    (one,) = group(1)
    one.lead(1)
    one.on_disk = 0
    codes = one.send()
    one.end_step()
    assert codes == []
    one.on_disk = one.store.log.end
    one.end_step()
    assert codes == [ResponseCode.SUCCESS]


def test_next_process_shows_nothing_that_was_not_confirmed_before_the_first_note() -> None:
    (one,) = group(1)
    one.lead(1)
    one.controlled.appoint(InSync(frozenset({1, 2}), 11))
    one.put(3)
    assert one.store.confirmed == 0
    book = EpochBook(one.writes[-1], one.writes.append)
    again = open_store(one.folder.after_crash(), SMALL, lambda ms: f"{ms:017d}")
    Controlled(Log(again, book, lambda: again.log.end), one.options, one.broker)
    assert (again.confirmed, bodies(again)) == (0, [])


@pytest.mark.parametrize(("replicas", "needed"), [(2, 1), (3, 2)])
def test_sender_waits_for_a_number_of_replicas(replicas: int, needed: int) -> None:
    (one, *_), links = trio(all_in_sync=False, in_sync_replicas=replicas)
    codes = one.send()
    for link in links[:needed]:
        assert codes == []
        pump(*link)
    assert codes == [ResponseCode.SUCCESS]


def test_sender_does_not_wait_for_one_replica_but_readers_do_for_all() -> None:
    (one, *_), links = trio(all_in_sync=False, in_sync_replicas=1)
    assert one.role.takes_plain
    assert one.send() == [ResponseCode.SUCCESS]
    pump(*links[0])
    assert bodies(one.store) == []
    pump(*links[1])
    assert bodies(one.store) == [0]


def test_more_replicas_than_there_are_is_no_copy() -> None:
    (one, *_), links = trio(all_in_sync=False, in_sync_replicas=4)
    codes = one.send()
    for link in links:
        pump(*link)
    assert codes == []
    one.clock.ms += 3_000
    one.controlled.tick()
    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT]


def test_senders_are_let_go_when_another_broker_is_master() -> None:
    (one, *_), _ = trio()
    codes = one.send()
    one.follow(2, 2)
    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    assert one.send() == [ResponseCode.SERVICE_NOT_AVAILABLE]


# -- what may be read


def test_slave_shows_what_the_master_has_confirmed() -> None:
    (one, two, _), links = trio()
    one.put(2)
    pump(*links[0])
    assert (bodies(one.store), bodies(two.store)) == ([], [])
    pump(*links[1])
    one.end_step()
    pump(*links[0])
    assert bodies(one.store) == bodies(two.store) == [0, 1]


def test_slave_that_is_elected_shows_what_it_has() -> None:
    (one, two, _), links = trio()
    one.put(2)
    pump(*links[0])
    assert bodies(two.store) == []
    two.lead(2)
    two.end_step()
    assert bodies(two.store) == [0, 1]
