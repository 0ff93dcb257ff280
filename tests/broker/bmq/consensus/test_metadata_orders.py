"""Orders of messages that seldom occur, one by one: what is late, missed, or appears twice."""

from __future__ import annotations

from broker.bmq.consensus.cluster_table import State
from formats.bmq.codes import EventType
from formats.bmq.control.messages import QueueInfo
from formats.bmq.disk.ledger import LedgerRecordType, parse_ledger_record
from formats.bmq.wire.event import EVENT_HEADER_SIZE
from tests.broker.bmq.consensus.metadata_bus import PRIORITY, Bus, Node, cluster, collector


def assign(node: Node, name: str) -> list[object]:
    outcomes, done = collector()
    node.metadata.assign_queue(f"bmq://priority/{name}", PRIORITY, done)
    return outcomes


def updates(node: Node) -> list[int]:
    """The numbers, in the term, of the advisories other than snapshots that a node has recorded."""
    return [number.sequence_number for number, kind, _ in node.records() if kind is LedgerRecordType.UPDATE]


def forget_leader(bus: Bus, node_id: int) -> None:
    """The node does not hear its leader any more, and ignores what it tells."""
    bus.nodes[node_id].metadata.leader_changed(None, bus.term)


def is_snapshot(event: bytes) -> bool:
    """Return whether a leader's event has the whole state in it."""
    if event[4] & 0x3F != EventType.CLUSTER_STATE:
        return False
    return parse_ledger_record(memoryview(event), EVENT_HEADER_SIZE).header.record_type == LedgerRecordType.SNAPSHOT


def state_of(node: Node) -> State:
    return node.metadata.fsm_state


def test_one_that_missed_an_advisory_records_none_before_the_next_snapshot() -> None:
    bus = cluster()
    forget_leader(bus, 2)
    assign(bus.nodes[3], "missed")
    bus.run()
    assert updates(bus.nodes[1]) == [5]
    # It follows again. The leader does not know yet, and goes on.
    bus.nodes[2].metadata.leader_changed(3, bus.term)
    assign(bus.nodes[3], "next")
    bus.run()
    assert updates(bus.nodes[1]) == [5, 7]
    assert updates(bus.nodes[2]) == []
    assert len(bus.nodes[2].metadata.state.queues) == 2


def test_a_snapshot_that_comes_once_more_does_not_stand_for_what_was_left_out_since() -> None:
    bus = cluster()
    leader, full = bus.nodes[3], bus.nodes[2]
    full.directory.free = 0
    assign(leader, "left-out")
    bus.run(500)
    snapshot = [event for target, event in leader.sent if target == 2 and is_snapshot(event)][-1]
    assert state_of(full) is State.FOL_HEALING
    assign(leader, "ignored")
    bus.run()
    full.directory.free = 1 << 20
    before = full.records()
    full.receive(3, snapshot)
    assign(leader, "next")
    bus.run()
    assert full.records() == before
    bus.run(3000)
    assert bus.healed == [1, 2, 3]
    assert len(full.metadata.state.queues) == 3


def test_a_snapshot_is_as_good_as_what_came_before_it() -> None:
    bus = cluster()
    bus.kill(1)
    forget_leader(bus, 2)
    outcomes = assign(bus.nodes[3], "q")
    bus.run()
    assert outcomes == []
    bus.nodes[2].metadata.leader_changed(3, bus.term)
    bus.run()
    assert isinstance(outcomes[0], QueueInfo)
    assert bus.nodes[3].metadata.ledger.uncommitted == {}
    assert bus.nodes[2].metadata.ledger.uncommitted == {}


def test_a_snapshot_whose_commit_was_missed_leaves_nothing_behind() -> None:
    bus = cluster()
    bus.elect(3)
    ledger = bus.nodes[2].metadata.ledger
    while not ledger.uncommitted:
        assert bus.step()
    bus.cut(2, 3)
    bus.run()
    assert len(ledger.uncommitted) == 1
    assign(bus.nodes[1], "q")
    bus.run()
    bus.connect()
    bus.run()
    assert bus.healed == [1, 2, 3]
    assert ledger.uncommitted == {}
    assert ledger.recorded == ledger.state
    assert list(ledger.state.queues) == ["bmq://priority/q"]


def test_repeated_advisory_is_recorded_once() -> None:
    bus = cluster()
    assign(bus.nodes[3], "q")
    (event,) = [event for target, event in bus.nodes[3].sent[-2:] if target == 1]
    for _ in range(2):
        bus.nodes[1].receive(3, event)
    assert updates(bus.nodes[1]) == [5]
    bus.run()
    assert updates(bus.nodes[1]) == [5]


def test_advisories_are_taken_from_the_leader_alone() -> None:
    bus = cluster()
    assign(bus.nodes[3], "q")
    (event,) = [event for target, event in bus.nodes[3].sent[-2:] if target == 1]
    bus.nodes[1].receive(2, event)
    assert updates(bus.nodes[1]) == []
    bus.nodes[1].receive(3, event)
    assert updates(bus.nodes[1]) == [5]


def test_the_ack_of_an_update_says_nothing_of_those_before_it() -> None:
    bus = cluster()
    forget_leader(bus, 2)
    outcomes = [assign(bus.nodes[3], name) for name in ("first", "second")]
    acks = bus.flows[1, 3]
    while len(acks) < 2:
        assert bus.step()
    first = acks.popleft()[1]
    bus.run()
    assert outcomes == [[], []]
    assert updates(bus.nodes[1]) == [5, 6]
    bus.nodes[3].receive(1, first)
    bus.run()
    assert [type(outcome) for (outcome,) in outcomes] == [QueueInfo, QueueInfo]


def test_the_ack_of_a_node_that_is_gone_does_not_count() -> None:
    bus = cluster(5, 5)
    for node_id in (1, 2, 3):
        forget_leader(bus, node_id)
    outcomes = assign(bus.nodes[5], "q")
    bus.run()
    assert updates(bus.nodes[4]) == updates(bus.nodes[5])
    bus.kill(4)
    bus.restart(4, wiped=True)
    # One more makes two that have it, of five.
    bus.nodes[3].metadata.leader_changed(5, bus.term)
    bus.run()
    assert outcomes == []
    bus.nodes[2].metadata.leader_changed(5, bus.term)
    bus.run()
    assert isinstance(outcomes[0], QueueInfo)


def test_a_primary_that_dies_before_the_leader_is_healed_is_replaced() -> None:
    bus = Bus(partition_count=3, spread=True)
    bus.connect()
    bus.elect(3)
    while bus.nodes[3].metadata.fsm_state is not State.LDR_HEALING_STG3:
        assert bus.step()
    (named,) = {info.primary_node_id for info in bus.nodes[3].metadata.ledger.recorded.primaries.values()} - {2, 3}
    bus.kill(named)
    bus.run()
    assert bus.healed == [2, 3]
    assert {primary for primary, _ in bus.nodes[2].primaries.values()} == {2, 3}
    assert bus.nodes[2].primaries == bus.nodes[3].primaries


def test_a_primary_that_restarts_before_the_leader_is_healed_has_no_old_lease() -> None:
    bus = cluster(partition_count=3, spread=True)
    assert bus.nodes[3].primaries == {0: (1, 1), 1: (2, 1), 2: (3, 1)}
    bus.elect(2)
    while state_of(bus.nodes[2]) is not State.LDR_HEALING_STG3:
        assert bus.step()
    # Node 1 is available, and stays primary; its process is another soon after.
    bus.kill(1)
    bus.restart(1)
    bus.connect()
    bus.nodes[1].metadata.leader_changed(2, bus.term)
    bus.run()
    assert bus.healed == [1, 2, 3]
    assert bus.nodes[1].primaries[0][1] == 2
    assert bus.nodes[1].primaries == bus.nodes[2].primaries


def test_a_primary_that_restarts_while_the_leader_cannot_record_has_no_old_lease() -> None:
    bus = cluster(partition_count=3, spread=True)
    directory = bus.nodes[3].directory
    free, directory.free = directory.free, 0
    bus.kill(1)
    bus.restart(1)
    bus.connect()
    bus.nodes[1].metadata.leader_changed(3, bus.term)
    bus.run()
    directory.free = free
    bus.run(2000)
    assert bus.healed == [1, 2, 3]
    assert bus.nodes[1].primaries[0][1] == 2
    assert bus.nodes[1].primaries == bus.nodes[3].primaries


def test_pulled_state_is_kept_until_it_is_recorded() -> None:
    """The leader lags and its disk is full: a registering node must not get its old state."""
    bus = cluster()
    bus.kill(1)
    assign(bus.nodes[3], "q")
    bus.run()
    bus.kill(3)
    leader = bus.restart(1)
    bus.connect(1, 2)
    leader.directory.free = 0
    bus.elect(1)
    bus.run()
    assert state_of(leader) is State.LDR_HEALING_STG3
    bus.nodes[2].metadata.leader_changed(None, bus.term)
    bus.nodes[2].metadata.leader_changed(1, bus.term)
    leader.directory.free = 1 << 20
    bus.run(5000)
    assert bus.healed == [1, 2]
    assert list(leader.metadata.state.queues) == ["bmq://priority/q"]
    assert leader.metadata.state == bus.nodes[2].metadata.state


def test_an_old_key_takes_no_new_queue_away() -> None:
    bus = cluster()
    outcomes = assign(bus.nodes[1], "q")
    bus.run()
    (old,) = outcomes
    assert isinstance(old, QueueInfo)
    gone, done = collector()
    bus.nodes[3].metadata.unassign(old, done)
    bus.run()
    outcomes = assign(bus.nodes[1], "q")
    bus.run()
    for node_id in (1, 3):
        bus.nodes[node_id].metadata.unassign(old, done)
        bus.run()
    assert gone == [None] * 3
    assert [*bus.nodes[2].metadata.state.queues.values()] == outcomes


def test_an_ack_that_is_late_meets_a_leader_that_begins_anew() -> None:
    bus = Bus()
    bus.connect(2, 3)
    bus.elect(3)
    leader, follower = bus.nodes[3], bus.nodes[2]
    while state_of(leader) is not State.LDR_HEALING_STG3:
        assert bus.step()
    for target, event in list(leader.sent):
        if target == 2:
            follower.receive(3, event)
    ack = follower.sent[-1][1]
    assert ack[4] & 0x3F == EventType.CLUSTER_STATE
    # So late that the leader has lost its patience.
    for flow in bus.flows.values():
        flow.clear()
    bus.now.ms += 2000
    leader.timers.run(bus.now.ms)
    assert state_of(leader) is State.LDR_HEALING_STG1
    leader.receive(2, ack)
    assert state_of(leader) is State.LDR_HEALING_STG1
    bus.run(5000)
    assert bus.healed == [2, 3]
