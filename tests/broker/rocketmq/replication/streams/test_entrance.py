"""Admission at the port for slaves: by address, by the secret, and by the id that a slave has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from broker.common.addresses import Addresses
from broker.common.clock import Now
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.replication.lifecycles import CopyState
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.entrance import (
    AnsweredEntrance,
    EntranceOfMembers,
    ProvenEntrance,
    StreamEntrance,
)
from broker.rocketmq.replication.streams.roster import ASK_MS, MEMBERS_MAX, Found, Roster
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.proof import ANSWER_BYTES, CHALLENGE_BYTES, MAGIC, dialer_code
from formats.rocketmq.remoting.replication import REPORT, Report
from tests.broker.rocketmq.replication.streams.ends import MASTER, Clock, Master, Replica, pump
from tests.broker.rocketmq.store.copying_rig import log_bytes

SLAVE, STRANGER = "10.0.0.2", "203.0.113.7"
SECRET, PORT = b"a secret of the group", 10912


class Group:
    """A master, and reports about the brokers of its name; `asked` wait for the answer."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.master = Master(self.clock, ReplicationOptions(Role.SYNC_MASTER, 2))
        self.lookups: list[tuple[str, Callable[[frozenset[str] | str], None]]] = []
        self.asked: list[Found] = []
        addresses = Addresses("10.0.0.1", Now(), lambda *asked: self.lookups.append(asked))
        self.roster = Roster(
            KnownPeers(addresses), lambda found: self.asked.append(found), lambda: 0, lambda: self.clock.ms
        )

    def tell(self, found: Mapping[int, str] | None) -> None:
        asked, self.asked = self.asked, []
        for each in asked:
            each(found)

    def connect(
        self, host: str, make: Callable[[ReplicationSession], StreamEntrance | None] | None = None
    ) -> ReplicationSession:
        """Make the session of who connects from a host."""

        def by_address(session: ReplicationSession) -> StreamEntrance:
            return EntranceOfMembers(self.roster, session.host.address, session.go_on)

        dirty, copies = self.master.dirty, self.master.copies
        return ReplicationSession(
            1, Host(host, 1), self.master.options, dirty.add, lambda: self.clock.ms, copies.add, make or by_address
        )


@pytest.fixture
def group() -> Group:
    found = Group()
    found.master.put(10)
    return found


def report(session: ReplicationSession, offset: int = 0) -> None:
    data = REPORT.pack(Report(offset))
    assert session.receive(memoryview(data)) == len(data)


@pytest.mark.parametrize(
    "members",
    [
        None,
        {},
        {0: "10.0.0.1:10911"},
        # The master itself is no slave, and neither is one whose address cannot be one.
        {0: f"{STRANGER}:10911", 1: f"{SLAVE}:10911"},
        {1: "nowhere"},
    ],
)
def test_stranger_gets_nothing_and_counts_for_nothing(group: Group, members: Mapping[int, str] | None) -> None:
    session = group.connect(STRANGER)
    report(session)
    report(session, 100)
    assert session.take_output() == b""
    group.tell(members)
    assert session.finished
    assert session.take_output() == b""
    (copy,) = group.master.copies._copies
    assert (copy.state, copy.acknowledged) == (CopyState.WAITING, -1)
    assert group.master.copies.replicas_with(1) == 1
    # It gets the answer at once when it comes again.
    again = group.connect(STRANGER)
    report(again)
    assert (again.finished, group.asked) == (True, [])


def test_slave_gets_the_log_once_it_is_known_and_at_once_from_then_on(group: Group) -> None:
    session = group.connect(SLAVE)
    report(session)
    assert session.take_output() == b""
    group.tell({0: "10.0.0.1:10911", 1: f"{SLAVE}:10911"})
    assert not session.finished
    assert len(session.take_output()) > len(log_bytes(group.master.store))
    group.clock.ms += 60_000
    later = group.connect(SLAVE)
    report(later)
    assert later.take_output()
    assert group.asked == []


def test_slave_that_has_asked_for_the_addresses_is_let_in_before_it_registers(group: Group) -> None:
    group.roster.announce(SLAVE)
    session = group.connect(SLAVE)
    report(session)
    assert (session.finished, group.asked) == (False, [])
    assert len(session.take_output()) > len(log_bytes(group.master.store))
    assert group.roster.refusal(SLAVE, broker_id=1) is not None
    for number in range(MEMBERS_MAX):
        group.roster.announce(f"host-{number}")
    assert group.roster.refusal(SLAVE) is not None


@pytest.mark.parametrize(("host", "is_let_in"), [(SLAVE, True), (STRANGER, False)])
def test_nameserver_of_the_same_process_answers_at_once(group: Group, host: str, is_let_in: bool) -> None:
    group.roster = Roster(KnownPeers(), lambda found: found({1: f"{SLAVE}:10911"}), lambda: 0, lambda: group.clock.ms)
    session = group.connect(host)
    report(session)
    assert (not session.finished, bool(session.take_output())) == (is_let_in, is_let_in)


def test_slaves_that_come_together_wait_for_one_answer(group: Group) -> None:
    sessions = [group.connect(host) for host in (SLAVE, "10.0.0.3", STRANGER)]
    for session in sessions:
        report(session)
    assert len(group.asked) == 1
    group.tell({1: f"{SLAVE}:10911", 2: "10.0.0.3:10911"})
    assert [session.finished for session in sessions] == [False, False, True]


def test_slave_that_has_registered_since_is_asked_about_again(group: Group) -> None:
    session = group.connect(SLAVE)
    report(session)
    group.tell({})
    assert session.finished
    group.clock.ms += ASK_MS
    again = group.connect(SLAVE)
    report(again)
    group.tell({1: f"{SLAVE}:10911"})
    assert again.take_output()


def test_hosts_of_slaves_are_looked_up(group: Group) -> None:
    session = group.connect(SLAVE)
    report(session)
    group.tell({1: "broker-1:10911"})
    ((host, found),) = group.lookups
    assert host == "broker-1"
    assert not session.finished
    found(frozenset({SLAVE}))
    assert session.take_output()


def test_nothing_more_is_held_of_one_that_is_not_let_in_yet(group: Group) -> None:
    session = group.connect(SLAVE)
    for _ in range(600):
        report(session)
    assert session.finished
    group.tell({1: f"{SLAVE}:10911"})
    assert session.take_output() == b""


def test_id_belongs_to_the_address_of_its_broker(group: Group) -> None:
    session = group.connect(SLAVE)
    report(session)
    group.tell({1: f"{SLAVE}:10911", 2: "10.0.0.3:10911"})
    assert session.refuse_id(1) is None
    assert "10.0.0.3" in (session.refuse_id(2) or "")
    assert session.refuse_id(3) == "no slave with id 3 is registered"


# -- with a secret


def with_secret(session: ReplicationSession) -> StreamEntrance:
    return ProvenEntrance(SECRET, PORT)


def connect(replica: Replica, secret: bytes, port: int = PORT) -> ReplicationSession:
    """Have a slave connect that knows a secret."""
    replica.slave.follow(MASTER)
    address, connected, _ = replica.dialed.pop(0)
    replica.make_entrance = lambda session: AnsweredEntrance(secret, port)
    return connected(address)


def test_ends_that_know_the_secret_begin_and_the_log_is_the_same(group: Group) -> None:
    for chunk in (1, 7, 4096):
        near = group.connect(STRANGER, with_secret)
        replica = Replica(group.clock)
        far = connect(replica, SECRET)
        pump(near, far, chunk)
        assert log_bytes(replica.store) == log_bytes(group.master.store)
        assert group.master.copies.replicas_with(group.master.store.log.end) == 2
        near.end()


@pytest.mark.parametrize(("secret", "port"), [(b"another secret", PORT), (SECRET, PORT + 1)])
def test_other_secret_and_other_port_are_refused(group: Group, secret: bytes, port: int) -> None:
    near = group.connect(SLAVE, with_secret)
    replica = Replica(group.clock)
    far = connect(replica, secret, port)
    pump(near, far)
    assert near.finished
    assert near.take_output() == b""
    assert replica.store.log.end == 0


def test_master_without_the_secret_is_not_followed(group: Group) -> None:
    near = group.connect(SLAVE, lambda session: None)
    replica = Replica(group.clock)
    far = connect(replica, SECRET)
    pump(near, far)
    far.receive(memoryview(bytes(64)))
    assert far.finished
    # One that repeats what it is sent, or has recorded, knows no code of the listener's.
    far = connect(Replica(group.clock), SECRET)
    far.receive(memoryview(MAGIC + bytes(CHALLENGE_BYTES)))
    answer = bytes(far.take_output())
    assert len(answer) == len(MAGIC) + ANSWER_BYTES
    far.receive(memoryview(answer[-32:]))
    assert far.finished


def test_answer_to_another_challenge_is_refused(group: Group) -> None:
    first, second = (group.connect(SLAVE, with_secret) for _ in range(2))
    challenge = bytes(first.take_output())[len(MAGIC) :]
    nonce = bytes(CHALLENGE_BYTES)
    answer = MAGIC + nonce + dialer_code(SECRET, PORT, "", challenge, nonce)
    second.receive(memoryview(answer))
    assert second.finished
    first.receive(memoryview(answer + REPORT.pack(Report(0))))
    assert not first.finished
    assert len(first.take_output()) > len(log_bytes(group.master.store))


def test_slave_without_the_secret_is_refused_with_its_first_report(group: Group) -> None:
    session = group.connect(SLAVE, with_secret)
    report(session)
    assert session.finished
    assert group.master.copies.replicas_with(1) == 1
