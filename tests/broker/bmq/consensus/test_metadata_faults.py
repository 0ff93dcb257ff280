"""The ledger of several nodes under faults: seeds of random histories, full disks, rollovers, garbage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from broker.bmq.consensus.cluster_table import State
from broker.bmq.core.ledger import COMMIT_SIZE_MAX
from broker.bmq.queue.handles import Refusal
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ClusterStateFSMMessage,
    ControlMessage,
    FollowerLSNRequest,
    FollowerLSNResponse,
    LeaderAdvisory,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryAdvisory,
    PartitionPrimaryInfo,
    QueueInfo,
    RegistrationRequest,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.wire.event import build_event, build_schema_event, next_frame, schema_message
from formats.errors import FormatError
from tests.broker.bmq.consensus.metadata_bus import FANOUT, PRIORITY, Bus, Node, cluster, collector
from tests.broker.fakes import Crash
from tests.families import sweep

MOST = (1 << 64) - 1


class History:
    """A random history of a cluster, and what must hold at every moment of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bus = Bus(
            self.random.choice((3, 3, 5)),
            seed=seed,
            partition_count=self.random.choice((1, 4)),
            spread=self.random.random() < 0.5,
            ledger_size=self.random.choice((1500, 4000, 1 << 16)),
        )
        self.bus.connect()
        # Every record that was ever seen, and every commit, by number.
        self.records: dict[LedgerNumber, bytes] = {}
        self.commits: dict[LedgerNumber, object] = {}
        self.leases: dict[tuple[int, int], int] = {}
        self.granted: dict[str, QueueInfo] = {}
        self.taken_away: set[bytes] = set()
        self.asked = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.act()
            self.check()

    def act(self) -> None:
        bus, random = self.bus, self.random
        alive = [node_id for node_id, node in bus.nodes.items() if node.alive]
        node_id = random.choice(bus.ids)
        match random.randrange(15):
            case 0 if len(alive) > 1:
                bus.kill(random.choice(alive))
            case 1 if not bus.nodes[node_id].alive:
                bus.restart(node_id)
            case 2:
                bus.cut(*random.sample(bus.ids, 2))
            case 3 | 4:
                one, other = sorted(random.sample(bus.ids, 2))
                bus.connect_pair(one, other)
            case 5 if alive:
                self.elect(random.choice(alive))
            case 6 if alive:
                # One that no longer hears its leader.
                bus.nodes[random.choice(alive)].metadata.leader_changed(None, bus.term)
            case 7 if alive:
                bus.set_available(random.choice(alive))
            case 8 if alive and self.granted:
                self.unassign(bus.nodes[random.choice(alive)])
            case 9 if alive:
                self.update(bus.nodes[random.choice(alive)])
            case 12 if alive:
                bus.nodes[random.choice(alive)].directory.free = random.choice((0, 500, 1 << 30))
            case 10 | 11 if alive:
                self.assign(bus.nodes[random.choice(alive)])
            case _:
                for _ in range(random.randrange(1, 12)):
                    bus.step()
                    self.check()
                bus.run(1)
                bus.now.ms += random.choice((1, 10, 300))

    def elect(self, leader_id: int) -> None:
        """A majority that the leader sees votes for it; some of it may hear later, or never."""
        bus = self.bus
        visible = [each for each in bus.ids if each != leader_id and bus.nodes[leader_id].is_up(each)]
        if len(visible) + 1 > len(bus.ids) // 2:
            # Voters no longer follow older leaders.
            voters = self.random.sample(visible, self.random.randrange(len(bus.ids) // 2, len(visible) + 1))
            bus.elect(leader_id, *voters, leader_id)

    def assign(self, node: Node) -> None:
        self.asked += 1
        name = self.random.choice(("priority", "fanout"))
        uri = f"bmq://{name}/{self.asked if self.random.random() < 0.7 else self.random.randrange(4)}"
        config = {"priority": PRIORITY, "fanout": FANOUT}[name]

        def done(outcome: QueueInfo | Refusal) -> None:
            if isinstance(outcome, QueueInfo):
                self.granted[uri] = outcome

        node.metadata.assign_queue(uri, config, done)

    def unassign(self, node: Node) -> None:
        info = self.random.choice(list(self.granted.values()))
        self.taken_away.add(info.key)
        node.metadata.unassign(info, lambda refusal: None)

    def update(self, node: Node) -> None:
        if not self.granted:
            return
        info = self.random.choice(list(self.granted.values()))
        added, removed = self.random.sample(("foo", "bar", "baz", "qux"), 2)
        node.metadata.update_apps(info.uri, "fanout", [added], [removed], lambda refusal: None)

    # -- what must hold

    def check(self) -> None:
        for node in self.bus.nodes.values():
            if not node.alive:
                continue
            for number, advisory in node.commits:
                assert self.commits.setdefault(number, advisory) == advisory
            assert [number for number, _ in node.commits] == sorted({number for number, _ in node.commits})
            node.commits[:] = node.commits[-1:]
            for partition_id, (primary, lease_id) in node.primaries.items():
                if primary is not None:
                    assert self.leases.setdefault((partition_id, lease_id), primary) == primary

    def check_files(self) -> None:
        for node in self.bus.nodes.values():
            assert node.faults() == []
            for number, kind, record in node.records():
                if kind is not LedgerRecordType.SNAPSHOT:
                    assert self.records.setdefault(number, record) == record

    def heal(self) -> None:
        """All faults end: everybody comes to know what was ever granted."""
        bus = self.bus
        for node_id, node in bus.nodes.items():
            node.directory.free = 1 << 30
            if not node.alive:
                bus.restart(node_id)
        bus.connect()
        leader_id = self.random.choice(bus.ids)
        bus.elect(leader_id)
        outcomes, done = collector()
        bus.nodes[leader_id % len(bus.ids) + 1].metadata.assign_queue("bmq://priority/last", PRIORITY, done)
        bus.run(5000)
        self.check()
        self.check_files()
        assert bus.healed == list(bus.ids)
        (last,) = outcomes
        assert isinstance(last, QueueInfo)
        states = [node.metadata.state for node in bus.nodes.values()]
        assert all(state.queues == states[0].queues for state in states)
        assert all(state.primaries == states[0].primaries for state in states)
        for uri, info in self.granted.items():
            if info.key not in self.taken_away:
                assert states[0].queues[uri].key == info.key
        for node in bus.nodes.values():
            assert node.primaries == {
                pid: (each.primary_node_id, each.primary_lease_id) for pid, each in states[0].primaries.items()
            }
            known = dict(node.at_first)
            for change in node.changes:
                for info in change.unassigned:
                    assert known.pop(info.uri).key == info.key
                known |= {info.uri: info for info in (*change.assigned, *change.updated)}
            assert known == states[0].queues


@pytest.mark.parametrize("seed", sweep(range(40), 8))
def test_random_histories(seed: int) -> None:
    history = History(seed)
    history.run(150)
    history.heal()
    history.run(60)
    history.heal()


# -- a node that cannot record


def assign(node: Node, number: int) -> list[object]:
    outcomes, done = collector()
    node.metadata.assign_queue(f"bmq://fanout/{number}", FANOUT, done)
    return outcomes


def test_a_follower_with_a_full_disk_begins_anew_when_it_has_room() -> None:
    bus = cluster()
    full = bus.nodes[2]
    full.directory.free = 0
    asked = [assign(bus.nodes[1], number) for number in range(3)]
    bus.run()
    assert all(isinstance(outcomes[0], QueueInfo) for outcomes in asked)
    assert full.metadata.state.queues == {}
    bus.run(3000)
    assert not full.metadata.healed
    full.directory.free = 1 << 20
    bus.run(3000)
    assert bus.healed == [1, 2, 3]
    assert full.metadata.state == bus.nodes[3].metadata.state
    assert full.faults() == []


@pytest.mark.parametrize("free", range(0, 400, 20))
def test_no_file_is_begun_that_has_no_room_for_its_first_record(free: int) -> None:
    bus = Bus()
    bus.connect()
    bus.nodes[2].directory.free = free
    bus.elect(3)
    bus.run()
    assert bool(bus.nodes[2].directory.names()) is bool(bus.nodes[2].records())


def test_a_leader_with_a_full_disk_refuses() -> None:
    bus = cluster()
    leader = bus.nodes[3]
    leader.directory.free = 0
    for node_id in (1, 3):
        outcomes = assign(bus.nodes[node_id], node_id)
        bus.run()
        (refusal,) = outcomes
        assert isinstance(refusal, Refusal)
        assert refusal.status.code == -208
    assert leader.metadata.state.queues == {}
    leader.directory.free = 1 << 20
    outcomes = assign(bus.nodes[1], 1)
    bus.run()
    assert isinstance(outcomes[0], QueueInfo)


def test_an_elected_node_with_a_full_disk_leads_when_it_has_room() -> None:
    bus = Bus()
    bus.connect()
    leader = bus.nodes[3]
    leader.directory.free = 0
    bus.elect(3)
    bus.run(5000)
    assert leader.metadata.fsm_state is State.LDR_HEALING_STG3
    assert bus.healed == []
    leader.directory.free = 1 << 20
    bus.run(5000)
    assert bus.healed == [1, 2, 3]


def test_a_leader_without_room_for_a_snapshot_sends_it_when_it_has_room() -> None:
    """A follower that registers meanwhile gets the state within the leader's pause, before its own watchdog ends."""
    bus = cluster()
    leader, follower = bus.nodes[3], bus.nodes[2]
    leader.directory.free = 0
    bus.cut(2, 3)
    follower.metadata.leader_changed(None, bus.term)
    bus.connect()
    follower.metadata.leader_changed(3, bus.term)
    bus.run()
    assert bus.healed == [1, 3]
    leader.directory.free = 1 << 20
    bus.run(200)
    assert bus.healed == [1, 2, 3]
    assert follower.metadata.state == leader.metadata.state
    assert leader.metadata._watchdog is None


def test_a_leader_that_heals_meanwhile_sends_the_snapshot_all_the_same() -> None:
    """A follower registers when there is no room, and the snapshot of before is committed after that."""
    bus = Bus()
    bus.connect(2, 3)
    bus.elect(3)
    leader = bus.nodes[3]
    while leader.metadata.fsm_state is not State.LDR_HEALING_STG3:
        assert bus.step()
    leader.directory.free = 0
    bus.connect()
    bus.nodes[1].metadata.leader_changed(3, bus.term)
    bus.run()
    assert bus.healed == [2, 3]
    leader.directory.free = 1 << 20
    bus.run(200)
    assert bus.healed == [1, 2, 3]


def test_a_commit_always_has_room() -> None:
    """The space reserved with advisories suffices for their commits, with the largest numbers."""
    high = LeaderMessageSequence(elector_term=(1 << 64) - 1, sequence_number=(1 << 64) - 1)
    body = ber.encode(ClusterMessage(choice=LeaderAdvisoryCommit(sequence_number=high, sequence_number_committed=high)))
    record = build_ledger_record(LedgerRecordType.COMMIT, high.elector_term, high.sequence_number, (1 << 64) - 1, body)
    assert len(record) == COMMIT_SIZE_MAX
    bus = cluster(ledger_size=1200)
    for number in range(40):
        asked = [assign(bus.nodes[1], 3 * number + each) for each in range(3)]
        # Once the advisories are recorded, commits need no more disk.
        while len(bus.nodes[3].metadata.ledger.uncommitted) < 3:
            assert bus.step()
        leader = bus.nodes[3].directory
        free, leader.free = leader.free, 0
        bus.run()
        assert all(isinstance(outcomes[0], QueueInfo) for outcomes in asked)
        leader.free = free


def test_full_files_are_followed_by_others() -> None:
    bus = cluster(ledger_size=2000)
    names = {node_id: set(node.directory.names()) for node_id, node in bus.nodes.items()}
    for number in range(30):
        assign(bus.nodes[number % 3 + 1], number)
        if number % 3 == 2:
            bus.run()
        for node_id, node in bus.nodes.items():
            assert len(node.directory.names()) == 1
            names[node_id] |= set(node.directory.names())
            assert node.faults() == []
    assert all(len(each) > 3 for each in names.values())
    for node_id in bus.ids:
        bus.kill(node_id)
    for node_id in bus.ids:
        assert len(bus.restart(node_id).metadata.state.queues) == 30
    bus.connect()
    bus.elect(1)
    bus.run()
    assert len(bus.nodes[2].metadata.state.queues) == 30


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_follower_that_is_killed_anywhere_comes_back(steps: int) -> None:
    """Killed amid a rollover or an append, its ledger is whole: it goes on from there."""
    bus = cluster(ledger_size=1200)
    victim = bus.nodes[2]
    victim.directory.steps_left = steps
    for number in range(12):
        assign(bus.nodes[3], number)
        try:
            bus.run()
        except Crash:
            victim.directory.steps_left = 1 << 40
            bus.kill(2)
            break
    bus.kill(2)
    again = bus.restart(2)
    assert again.faults() == []
    bus.connect()
    again.metadata.leader_changed(3, bus.term)
    bus.run()
    assert again.metadata.state == bus.nodes[3].metadata.state


# -- garbage


def test_garbage_is_an_error_and_changes_nothing() -> None:
    bus = cluster()
    node = bus.nodes[1]
    (_, kind, record), *_ = node.records()
    assert kind is LedgerRecordType.SNAPSHOT
    before = (node.records(), node.metadata.state.queues)
    random = Random(1)
    for _ in range(300):
        damaged = bytearray(record)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        cut = bytes(damaged[: random.randrange(len(damaged) + 1)]) if random.random() < 0.3 else bytes(damaged)
        data = memoryview(build_event(EventType.CLUSTER_STATE, cut + bytes(-len(cut) % 4)))
        frame = next_frame(data, 0, len(data), 1 << 20)
        assert frame is not None
        try:
            node.metadata.on_cluster_state(3, data, frame)
        except FormatError:
            continue
    assert (node.records(), node.metadata.state.queues) == before


@pytest.mark.parametrize(
    "info",
    [
        PartitionPrimaryInfo(partition_id=1, primary_node_id=3, primary_lease_id=9),
        PartitionPrimaryInfo(partition_id=-1, primary_node_id=3, primary_lease_id=9),
        PartitionPrimaryInfo(partition_id=0, primary_node_id=9, primary_lease_id=9),
        PartitionPrimaryInfo(partition_id=0, primary_node_id=2, primary_lease_id=1),
        PartitionPrimaryInfo(partition_id=0, primary_node_id=3, primary_lease_id=0),
        PartitionPrimaryInfo(partition_id=0, primary_node_id=3, primary_lease_id=(1 << 32) - 1),
    ],
)
def test_primaries_that_cannot_be_are_not_recorded(info: PartitionPrimaryInfo) -> None:
    bus = cluster()
    leader = bus.nodes[3].metadata
    before = bus.nodes[1].records()
    leader.replicated.advise(lambda number: PartitionPrimaryAdvisory(sequence_number=number, partitions=(info,)))
    bus.run()
    assert bus.nodes[1].records() == before
    assert bus.nodes[1].primaries == {0: (3, 1)}


@pytest.mark.parametrize(("term", "sequence_number"), [(2, 1), ((1 << 64) - 1, 1), (1, (1 << 64) - 1), (1, 1 << 40)])
def test_numbers_that_no_leader_comes_to_are_not_recorded(term: int, sequence_number: int) -> None:
    bus = cluster()
    node = bus.nodes[1]
    before = node.records(), node.metadata.number
    number = LeaderMessageSequence(elector_term=term, sequence_number=sequence_number)
    info = PartitionPrimaryInfo(partition_id=0, primary_node_id=3, primary_lease_id=2)
    advisories = (
        (LedgerRecordType.UPDATE, PartitionPrimaryAdvisory(sequence_number=number, partitions=(info,))),
        (LedgerRecordType.SNAPSHOT, LeaderAdvisory(sequence_number=number, partitions=(info,))),
    )
    for kind, advisory in advisories:
        record = build_ledger_record(kind, term, sequence_number, 0, ber.encode(ClusterMessage(choice=advisory)))
        data = memoryview(build_event(EventType.CLUSTER_STATE, record))
        frame = next_frame(data, 0, len(data), 1 << 20)
        assert frame is not None
        node.metadata.on_cluster_state(3, data, frame)
    assert (node.records(), node.metadata.number) == before
    # The leader's later messages are accepted.
    assign(bus.nodes[3], 1)
    bus.run()
    assert node.metadata.state.queues


def test_a_new_leader_takes_no_lease_that_no_leader_comes_to() -> None:
    """A follower with a longer ledger reports the highest possible lease, after which there is no number left."""
    bus = cluster()
    bus.cut(1, 2)
    bus.cut(1, 3)
    assign(bus.nodes[3], 1)
    bus.run()
    liar = bus.nodes[2].metadata.ledger
    (info,) = liar.recorded.primaries.values()
    liar.state.primaries[0] = replace(info, primary_lease_id=(1 << 32) - 1)
    bus.kill(3)
    bus.connect_pair(1, 2)
    bus.elect(1, 1, 2)
    bus.run(5_000)
    assert 1 not in bus.healed
    assert bus.nodes[1].metadata.state.primaries[0].primary_lease_id == 1


def _claim(info: PartitionPrimaryInfo, number: LeaderMessageSequence) -> PartitionPrimaryAdvisory:
    return PartitionPrimaryAdvisory(sequence_number=number, partitions=(info,))


def test_a_leader_that_uses_up_all_leases_ends_no_other_node() -> None:
    """The next leader has no number left for another primary, since the last one went as far at each step as it may."""
    bus = cluster(partition_count=2, spread=True, ledger_size=1 << 16)
    liar = bus.nodes[3].metadata
    last = (1 << 32) - 1
    for step in range(1, 257):
        lease_id = min(1 + (step << 24), last)
        info = PartitionPrimaryInfo(partition_id=0, primary_node_id=3, primary_lease_id=lease_id)
        liar.replicated.advise(partial(_claim, info))
        bus.run()
    assert bus.nodes[1].primaries[0] == bus.nodes[2].primaries[0] == (3, last)
    bus.kill(3)
    bus.elect(2, 1, 2)
    bus.run(5_000)
    for node in (bus.nodes[1], bus.nodes[2]):
        assert node.metadata.state.primaries[0].primary_lease_id == last
    # The other partition, and the queues, go on.
    assert bus.nodes[2].primaries[1][0] in (1, 2)
    assign(bus.nodes[2], 1)
    bus.run()
    assert bus.nodes[1].metadata.state.queues
    # A primary with records of the last lease that there is can ask for no higher one.
    for node in (bus.nodes[1], bus.nodes[2]):
        node.metadata.lease_outdated(1, last)
    bus.run()


def said(node: Node) -> Iterator[tuple[int, ControlMessage]]:
    """Yield the control messages that a node sent, the latest first, with their receivers."""
    for node_id, event in reversed(node.sent):
        data = memoryview(event)
        frame = next_frame(data, 0, len(data), 1 << 26)
        if frame is not None and frame.type == EventType.CONTROL:
            yield node_id, ber.decode(ControlMessage, bytes(schema_message(data, frame.body, frame.end)))


def is_request_for_number(message: ControlMessage) -> bool:
    match message.choice:
        case ClusterMessage(choice=ClusterStateFSMMessage(choice=FollowerLSNRequest())):
            return True
    return False


@pytest.mark.parametrize("excess", [LedgerNumber(2, 1), LedgerNumber(1 << 40, 0), LedgerNumber(MOST, MOST)])
@pytest.mark.parametrize("registers", [False, True])
def test_a_number_that_no_follower_comes_to_is_an_error(registers: bool, excess: LedgerNumber) -> None:
    """The follower with the highest number decides the state: by a lie an empty one would, and forget the leases."""
    bus = cluster()
    before = bus.nodes[3].metadata.state
    bus.elect(3)
    leader = bus.nodes[3]
    number = LeaderMessageSequence(elector_term=excess.term, sequence_number=excess.sequence_number)
    asked = next(each for node_id, each in said(leader) if node_id == 1 and is_request_for_number(each))
    answer = RegistrationRequest(sequence_number=number) if registers else FollowerLSNResponse(sequence_number=number)
    choice = ClusterMessage(choice=ClusterStateFSMMessage(choice=answer))
    message = ControlMessage(r_id=7 if registers else asked.r_id, choice=choice)
    with pytest.raises(FormatError, match="beyond what this leader recorded"):
        leader.receive(1, build_schema_event(ber.encode(message)))
    bus.run()
    assert bus.healed == list(bus.ids)
    assert leader.metadata.state.primaries.keys() == before.primaries.keys()


def test_only_the_leader_is_heard() -> None:
    bus = cluster()
    assign(bus.nodes[3], 1)
    bus.run()
    (number, kind, record) = bus.nodes[3].records()[-2]
    assert kind is LedgerRecordType.UPDATE
    data = memoryview(build_event(EventType.CLUSTER_STATE, record))
    frame = next_frame(data, 0, len(data), 1 << 20)
    assert frame is not None
    for node_id, source in ((1, 2), (3, 1), (1, 3)):
        before = bus.nodes[node_id].records()
        bus.nodes[node_id].metadata.on_cluster_state(source, data, frame)
        assert bus.nodes[node_id].records() == before
    assert {node.metadata.number for node in bus.nodes.values()} == {
        LedgerNumber(number.term, number.sequence_number + 1)
    }
