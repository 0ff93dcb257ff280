"""The brokers of one name without a controller: who is there, who acts as master, and how a master comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.administration.registration import NameserverLink, Nameservers, register_frame
from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.remoting.outgoing import OtherEnd, Outgoing
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.remoting.requests import Request
from broker.rocketmq.remoting.session import Service, Session
from broker.rocketmq.replication.members import Members
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.returning import SLACK_MS, OffsetsReturning
from broker.rocketmq.settings import Settings
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS
from formats.rocketmq.remoting.bodies.routes import BrokerMemberGroup, DataVersion, TopicConfig, TopicRoute
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.replicating import ExchangeHaInfoRequest, ExchangeHaInfoResponse
from tests.broker.rocketmq.nameserver.nameserver_rig import no_settings
from tests.broker.rocketmq.proxy.clustered import Network
from tests.broker.rocketmq.replication.role_rig import Sender

END = OtherEnd("slave", logging.getLogger("broker.rocketmq.replication"))
NAMESERVER, OTHER = "10.0.0.9:9876", "10.0.0.8:9876"


class Group:
    """A nameserver, or two, and the brokers of one name that register there."""

    def __init__(self, *, notifies: bool = False) -> None:
        self.ms = 0
        self.network = Network(lambda: self.ms)
        self.brokers: list[Broker] = []
        initial = NAMESERVER_DEFAULTS | {
            "supportActingMaster": "true",
            "notifyMinBrokerIdChanged": str(notifies).lower(),
        }
        self.settings = Settings({}, NAMESERVER_READERS, lambda _: None, NAMESERVER_LOCKED, initial)
        self.nameservers = {name: self._nameserver(name) for name in (NAMESERVER, OTHER)}

    def _nameserver(self, name: str) -> NameserverService:
        guard = Guard(AccessOptions(), AccessTables(b"", b"", lambda _: None, lambda _: None), "")
        # A registration with one is not valid with the other.
        settings = self.settings if name == NAMESERVER else no_settings()
        requests = Nameserver(Routes(), KeyValues(b"", lambda _: None), settings)
        calls = BrokerCalls(self.dial, self.open)
        # All connections of the network come from one host.
        peers = KnownPeers(checks_address=False)
        service = NameserverService(
            requests, guard, lambda: self.ms, calls, lambda frame: frame, lambda: self.ms, peers
        )
        self.network.services[name] = service
        return service

    def dial(self, address: str, connected: Callable[[str], Session], failed: Callable[[str], None]) -> None:
        self.network.dial(address)(connected, failed)

    def open(self, address: str, service: Service) -> Session:
        return self.network._session(service)

    def add(self, broker_id: int, *names: str, **options: Any) -> Broker:
        broker = Broker(self, broker_id, names or (NAMESERVER,), options)
        self.brokers.append(broker)
        self.network.services[str(broker.options.address)] = broker
        return broker

    def kill(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        self.network.services.pop(str(broker.options.address))
        for _, pipe in self.network.pipes:
            if any(pipe.near._service is link._link for link in broker.links):
                pipe.cut()

    def pass_time(self, ms: int) -> None:
        end = self.ms + ms
        while self.ms < end:
            self.ms = min(end, self.ms + 200)
            for broker in self.brokers:
                broker.tick()
            for nameserver in self.nameservers.values():
                nameserver.tick()
            while self.network.exchange():
                pass

    def told(self, name: str = NAMESERVER) -> dict[int, str]:
        group: BrokerMemberGroup = self.nameservers[name]._nameserver.routes.member_group("DefaultCluster", "broker-a")
        return group.broker_addrs

    def route(self) -> TopicRoute:
        found = self.nameservers[NAMESERVER]._nameserver.routes.route("t")
        assert found is not None
        return found


class Broker:
    """A broker, as far as it is about others. `found` are the masters that it learned of."""

    def __init__(self, group: Group, broker_id: int, names: tuple[str, ...], options: dict[str, Any]) -> None:
        self.group = group
        self.options = BrokerOptions(
            broker_id=broker_id,
            address=Host(f"10.0.0.{broker_id + 1}", 10911),
            ha_address=f"10.0.0.{broker_id + 1}:10912",
            silent_ms=options.get("silent_ms", 10_000),
        )
        role = Role.SLAVE if broker_id else Role.SYNC_MASTER
        self.replication = ReplicationOptions(**{"role": role, "has_acting_master": True, **options})
        self.topics = Topics(self.options, b"", lambda _: None)
        self.topics.put(TopicConfig("t", 4, 4), 0)
        self.offsets = Offsets(b"")
        self.is_hung = False
        self.found: list[tuple[str, str | None]] = []

        def hello() -> Frame | None:
            return None if self.nameservers.is_silent else register_frame(self.options, self.topics)

        self.links = [NameserverLink(name, group.network.dial(name), group.open, hello) for name in names]
        self.nameservers = Nameservers(self.options, self.topics, self.links)
        self.announced: list[str] = []
        self.members = Members(
            self.replication, self.options, lambda: 77, lambda: group.ms, announce=self.announced.append
        )
        self.members.join(
            self.nameservers, lambda: group.ms, lambda address, ha_address: self.found.append((address, ha_address))
        )
        self.returning: OffsetsReturning | None = None

    def come_back(self) -> None:
        """Begin as a master that may have been away."""
        self.nameservers.is_silent = True
        group = self.group

        def back() -> None:
            self.nameservers.is_silent = False
            self.nameservers.register(group.ms)

        def link() -> Outgoing:
            return Outgoing(
                group.dial,
                group.open,
                lambda frame: frame,
                END,
            )

        self.returning = OffsetsReturning(self.replication, self.members, self.offsets, link, lambda: group.ms, back)

    def tick(self) -> None:
        if self.is_hung:
            return
        self.nameservers.tick(self.group.ms)
        self.members.tick()
        if self.returning is not None:
            self.returning.tick()

    # -- see `remoting.session.Service`

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        if frame.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            if not self.is_hung:
                session.answer(frame, Frame(ResponseCode.SUCCESS, 0, body=self.offsets.body()))
            return
        answer = self.members.handlers[frame.code](Request(frame, session, self.group.ms))
        assert answer is not None
        session.answer(frame, answer)

    def disconnected(self, session: Session) -> None: ...


def trio() -> tuple[Group, Broker, Broker, Broker]:
    group = Group()
    master, one, two = (group.add(each, total_replicas=3) for each in range(3))
    group.pass_time(3_000)
    return group, master, one, two


def test_members_know_each_other_and_the_master_counts_those_who_are_there() -> None:
    group, master, one, two = trio()
    assert group.told() == {each: f"10.0.0.{each + 1}:10911" for each in range(3)}
    assert (master.members.alive, one.members.alive) == (3, 3)
    assert master.members.others == {1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
    group.kill(two)
    group.pass_time(1_500)
    assert master.members.alive == 2


def test_count_is_the_configured_one_until_a_nameserver_says_another() -> None:
    group = Group()
    master = group.add(0, "10.0.0.7:9876", total_replicas=3)
    group.pass_time(5_000)
    assert (master.members.alive, master.members.others) == (3, None)


def test_silent_broker_is_dropped_seconds_after_its_heartbeats_stop_and_clients_find_the_acting_master() -> None:
    group, master, one, two = trio()
    began = group.ms
    # Its connections stay, as those of a process that is stopped do.
    master.is_hung = True
    while 0 in group.told():
        group.pass_time(200)
    assert 9_000 < group.ms - began <= 16_000
    route = group.route()
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
    assert [queues.perm for queues in route.queue_datas] == [4]
    group.pass_time(2_000)
    assert (one.members.least, two.members.least) == (1, 1)
    assert (one.members.alive, one.found) == (2, [])
    # It goes on: its connection was closed, and it registers by another one at once.
    master.is_hung = False
    group.pass_time(4_000)
    assert group.route().broker_datas[0].broker_addrs[0] == "10.0.0.1:10911"
    assert [queues.perm for queues in group.route().queue_datas] == [6]
    assert (one.members.least, two.members.least) == (0, 0)
    assert one.found == two.found == [("10.0.0.1:10911", None)]


def test_broker_says_itself_after_what_time_it_is_gone() -> None:
    group = Group()
    quick, slow = group.add(0, silent_ms=2_000), group.add(1, silent_ms=60_000)
    group.pass_time(3_000)
    quick.is_hung = slow.is_hung = True
    group.pass_time(8_000)
    assert group.told() == {1: "10.0.0.2:10911"}


def test_broker_that_beats_is_not_dropped() -> None:
    group, *_ = trio()
    # Registrations alone come every thirty seconds.
    for _ in range(40):
        group.pass_time(1_000)
        assert len(group.told()) == 3


def test_master_that_one_nameserver_still_knows_is_there() -> None:
    group = Group()
    master, slave = group.add(0, NAMESERVER, OTHER), group.add(1, NAMESERVER, OTHER)
    group.pass_time(3_000)
    group.network.end(NAMESERVER)
    group.nameservers[NAMESERVER]._nameserver.routes.disconnected(None)
    group.pass_time(3_000)
    assert (slave.members.least, slave.members.alive) == (0, 2)
    group.kill(master)
    group.pass_time(2_000)
    assert (slave.members.least, slave.members.alive) == (1, 1)


# -- notices to brokers


def test_brokers_are_told_at_once_who_has_the_least_id() -> None:
    group = Group(notifies=True)
    master, one, two = (group.add(each, members_ms=3_600_000) for each in range(3))
    group.pass_time(4_000)
    for each in (one, two):
        each.members.tick()
    group.kill(master)
    group.pass_time(400)
    assert (one.members.least, two.members.least) == (1, 1)
    again = group.add(0, members_ms=3_600_000)
    group.pass_time(200)
    assert 0 in group.told()
    group.pass_time(400)
    # Its address for slaves comes with the answer to a registration.
    assert one.found[-1] == two.found[-1] == ("10.0.0.1:10911", None)
    assert again.found == []


def test_members_are_notified_only_if_configured() -> None:
    group = Group()
    master, one = (group.add(each, members_ms=3_600_000) for each in range(2))
    group.pass_time(4_000)
    least = one.members.least
    group.kill(master)
    group.pass_time(4_000)
    assert one.members.least == least == 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"minBrokerId": "3"},
        {"minBrokerId": "3", "minBrokerAddr": "127.0.0.1:1", "brokerName": "broker-a"},
        {"minBrokerId": "3", "minBrokerAddr": "nowhere"},
        {"minBrokerId": "3", "minBrokerAddr": "10.0.0.4:1", "brokerName": "another"},
    ],
)
def test_word_of_the_least_id_changes_nothing_by_itself(fields: dict[str, str]) -> None:
    _, _, one, _ = trio()
    frame = Frame(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, 1, ext_fields=fields)
    answer = one.members.handlers[RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE](Request(frame, Sender(), 0))
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert one.members.least == 0


def test_master_and_slaves_exchange_their_addresses() -> None:
    _, master, one, _ = trio()
    codec, answered = codec_of(ExchangeHaInfoRequest), codec_of(ExchangeHaInfoResponse)

    def ask(broker: Broker, header: ExchangeHaInfoRequest, host: str = "10.0.0.1") -> ExchangeHaInfoResponse:
        frame = Frame(RequestCode.EXCHANGE_BROKER_HA_INFO, 1, ext_fields=codec.write(header))
        sender = Sender()
        sender.host = Host(host, 1)
        answer = broker.members.handlers[frame.code](Request(frame, sender, 0))
        assert answer is not None
        return answered.read(answer.ext_fields)

    assert ask(master, ExchangeHaInfoRequest()) == ExchangeHaInfoResponse("10.0.0.1:10912", 77, "10.0.0.1:10911")
    assert ask(one, ExchangeHaInfoRequest()) == ExchangeHaInfoResponse()
    told = ExchangeHaInfoRequest("10.0.0.1:10912", 5, "10.0.0.1:10911")
    # The word of somebody who is elsewhere counts for nothing.
    assert ask(one, told, "10.0.0.66") == ExchangeHaInfoResponse()
    assert one.found == []
    assert ask(one, told) == ask(master, told) == ExchangeHaInfoResponse()
    assert (one.found, master.found) == ([("10.0.0.1:10911", "10.0.0.1:10912")], [])
    # A slave that asks is about to copy the log, and registers afterwards.
    assert (one.announced, master.announced) == ([], ["10.0.0.1"])


# -- a master that comes back


def test_master_takes_newer_offsets_before_it_can_be_found() -> None:
    group, master, one, two = trio()
    group.kill(master)
    one.offsets.commit("t", "g", 0, 7)
    one.offsets.file(5)
    two.offsets.follow(CONSUMER_OFFSETS.write(CONSUMER_OFFSETS.read(one.offsets.body())))
    one.offsets.commit("t", "g", 0, 8)
    one.offsets.file(6)
    again = group.add(0, total_replicas=3)
    again.offsets.commit("t", "g", 0, 3)
    again.offsets.commit("t", "other", 0, 4)
    again.offsets.file(4)
    again.come_back()
    while 0 not in group.told():
        group.pass_time(200)
        if again.nameservers.is_silent:
            assert 0 not in group.told()
    assert (again.offsets.get("t", "g", 0), again.offsets.get("t", "other", 0)) == (8, 4)
    assert again.offsets.changed


def test_older_offsets_are_not_taken() -> None:
    offsets, other = Offsets(b""), Offsets(b"")
    other.commit("t", "g", 0, 1)
    other.file(9)
    offsets.commit("t", "g", 0, 2)
    offsets.file(5)
    offsets.commit("t", "g", 0, 3)
    offsets.file(6)
    assert not offsets.follow_newer(other.body())
    assert offsets.get("t", "g", 0) == 3
    other.follow(offsets.body())
    assert CONSUMER_OFFSETS.read(other.body()).data_version == DataVersion(2, 0, 6)
    # Data from its master is no change of its own.
    assert CONSUMER_OFFSETS.read(other.file(99)).data_version == DataVersion(2, 0, 6)
    assert offsets.follow_newer(other.body())


def test_master_does_not_wait_for_ever() -> None:
    group = Group()
    master, one = group.add(0, total_replicas=2), group.add(1, total_replicas=2, silent_ms=60_000)
    group.pass_time(3_000)
    group.kill(master)
    one.is_hung = True
    again = group.add(0, total_replicas=2)
    again.come_back()
    group.pass_time(10_000)
    assert set(group.told()) == {1}
    group.pass_time(SLACK_MS)
    assert set(group.told()) == {0, 1}


def test_master_waits_no_longer_for_who_is_dropped() -> None:
    group, master, one, _ = trio()
    group.kill(master)
    group.pass_time(1_000)
    one.is_hung = True
    group.pass_time(4_000)
    again = group.add(0, total_replicas=3)
    again.come_back()
    began = group.ms
    while 0 not in group.told():
        group.pass_time(200)
    assert group.ms - began < 10_000 + SLACK_MS
    assert 1 not in group.told()


def test_master_alone_registers_once_a_nameserver_knows_nobody_else() -> None:
    group = Group()
    master = group.add(0, total_replicas=2)
    master.come_back()
    group.pass_time(3_000)
    assert not master.nameservers.is_silent
    assert group.told() == {0: "10.0.0.1:10911"}


@pytest.mark.parametrize("answer", [Frame(ResponseCode.NO_PERMISSION, 0), Frame(ResponseCode.SUCCESS, 0, body=b"{")])
def test_answer_that_cannot_be_used_is_passed_over(answer: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    group, master, one, _ = trio()
    group.kill(master)
    monkeypatch.setattr(one, "receive", lambda frame, session: session.answer(frame, answer))
    again = group.add(0, total_replicas=3)
    again.offsets.commit("t", "g", 0, 3)
    again.come_back()
    group.pass_time(5_000)
    assert not again.nameservers.is_silent
    assert again.offsets.get("t", "g", 0) == 3
