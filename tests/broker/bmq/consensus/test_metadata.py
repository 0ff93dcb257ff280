"""Nodes agree on primaries and queues: at the start, at run time, when leaders change and nodes are lost."""

from __future__ import annotations

import pytest

from broker.bmq.consensus.cluster_table import State
from broker.bmq.queue.handles import Refusal
from formats.bmq.control.messages import NodeStatus, QueueInfo
from formats.bmq.disk.ledger import LedgerRecordType
from formats.bmq.disk.numbers import LedgerNumber
from tests.broker.bmq.consensus.metadata_bus import FANOUT, LIMITED, PRIORITY, Bus, Node, cluster, collector

QUEUE = "bmq://priority/q"


def assign(node: Node, uri: str = QUEUE) -> list[object]:
    outcomes, done = collector()
    config = {"fanout": FANOUT, "priority": PRIORITY, "limited": LIMITED}[uri.split("/")[2]]
    node.metadata.assign_queue(uri, config, done)
    return outcomes


def assert_agreement(bus: Bus) -> None:
    """All nodes have the same state, and the same record wherever they have one of a number."""
    seen: dict[LedgerNumber, bytes] = {}
    states = []
    for node in bus.nodes.values():
        assert node.faults() == []
        for number, kind, record in node.records():
            if kind is not LedgerRecordType.SNAPSHOT:
                assert seen.setdefault(number, record) == record
        state = node.metadata.state
        states.append((state.queues, state.primaries))
    assert all(state == states[0] for state in states)


# -- starting


def test_a_cold_cluster_heals() -> None:
    bus = cluster()
    leader = bus.nodes[3].metadata
    assert leader.is_active_leader
    assert [bus.nodes[node_id].metadata.fsm_state for node_id in (1, 2)] == [State.FOL_HEALED] * 2
    for node in bus.nodes.values():
        assert node.primaries == {0: (3, 1)}
    assert_agreement(bus)
    assert bus.nodes[1].records() == bus.nodes[2].records() == bus.nodes[3].records()


def test_a_minority_does_not_heal() -> None:
    bus = Bus(5)
    bus.connect(4, 5)
    bus.elect(5)
    bus.run(5000)
    assert bus.healed == []
    assert not any(node.primaries for node in bus.nodes.values())
    bus.connect(3, 5)
    bus.nodes[3].metadata.leader_changed(5, 1)
    bus.run(5000)
    assert bus.healed == [3, 4, 5]


def test_one_node_is_a_quorum_of_its_own() -> None:
    bus = cluster(1, 1)
    assert bus.nodes[1].primaries == {0: (1, 1)}
    (info,) = assign(bus.nodes[1])
    assert isinstance(info, QueueInfo)
    assert bus.nodes[1].metadata.state.queues == {QUEUE: info}


def test_partitions_go_to_the_leader_or_are_spread() -> None:
    assert cluster(partition_count=4).nodes[1].primaries == dict.fromkeys(range(4), (3, 1))
    spread = cluster(partition_count=4, spread=True).nodes[1].primaries
    assert spread == {0: (1, 1), 1: (2, 1), 2: (3, 1), 3: (1, 1)}


def test_a_late_node_is_healed_by_a_snapshot() -> None:
    bus = Bus()
    bus.connect(2, 3)
    bus.elect(3)
    bus.run()
    assert bus.healed == [2, 3]
    assign(bus.nodes[3])
    bus.run()
    bus.connect()
    bus.nodes[1].metadata.leader_changed(3, 1)
    bus.run()
    assert bus.healed == [1, 2, 3]
    assert_agreement(bus)
    assert list(bus.nodes[1].metadata.state.queues) == [QUEUE]
    assert [change.assigned[0].uri for change in bus.nodes[1].changes] == [QUEUE]


# -- queues


@pytest.mark.parametrize("asking", [1, 3])
def test_a_queue_is_assigned_once_a_quorum_has_it(asking: int) -> None:
    bus = cluster(partition_count=2)
    outcomes = assign(bus.nodes[asking], "bmq://fanout/q")
    assert outcomes == []
    bus.run()
    (info,) = outcomes
    assert isinstance(info, QueueInfo)
    assert [app.app_id for app in info.app_ids] == ["foo", "bar"]
    assert len({info.key, *(app.app_key for app in info.app_ids)}) == 3
    for node in bus.nodes.values():
        assert node.metadata.state.queues == {info.uri: info}
        assert [change.assigned for change in node.changes] == [(info,)]
    assert assign(bus.nodes[2], info.uri) == [info]
    assert_agreement(bus)


def test_many_ask_for_one_queue() -> None:
    bus = cluster()
    asked = [assign(node) for node in bus.nodes.values() for _ in range(3)]
    bus.run()
    assert len({str(outcomes) for outcomes in asked}) == 1
    assert all(len(outcomes) == 1 for outcomes in asked)
    assert bus.nodes[3].metadata.number.sequence_number == 6


def test_queues_go_where_the_fewest_are() -> None:
    bus = cluster(partition_count=3)
    for number in range(9):
        assign(bus.nodes[number % 3 + 1], f"bmq://priority/{number}")
        bus.run()
    placed = [info.partition_id for info in bus.nodes[1].metadata.state.queues.values()]
    assert sorted(placed) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len({info.key for info in bus.nodes[1].metadata.state.queues.values()}) == 9


def test_a_domain_has_no_more_queues_than_it_may() -> None:
    bus = cluster()
    granted = [assign(bus.nodes[1], f"bmq://limited/{number}") for number in range(3)]
    bus.run()
    refused = [outcome for outcomes in granted for outcome in outcomes if isinstance(outcome, Refusal)]
    assert [(refusal.status.code, refusal.status.message) for refusal in refused] == [
        (-205, "maximum number of queues reached")
    ]
    assert len(bus.nodes[3].metadata.state.queues) == 2


def test_a_domain_that_the_leader_does_not_know() -> None:
    bus = cluster()
    outcomes, done = collector()
    bus.nodes[1].metadata.assign_queue("bmq://nowhere/q", PRIORITY, done)
    bus.run()
    (refusal,) = outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.status.code == -10


def queue_of(bus: Bus, primary: int) -> QueueInfo:
    """Assign queues until one is in a partition of this primary, and return it."""
    while True:
        outcomes = assign(bus.nodes[1], f"bmq://priority/{len(bus.nodes[1].metadata.state.queues)}")
        bus.run()
        (info,) = outcomes
        assert isinstance(info, QueueInfo)
        if bus.nodes[1].metadata.state.primaries[info.partition_id].primary_node_id == primary:
            return info


@pytest.mark.parametrize("asking", [1, 3])
def test_queues_are_unassigned_and_come_back_with_another_key(asking: int) -> None:
    bus = cluster(partition_count=3, spread=True)
    first = queue_of(bus, asking)
    before = len(bus.nodes[2].changes)
    gone, done = collector()
    bus.nodes[asking].metadata.unassign(first, done)
    again = assign(bus.nodes[3], first.uri)
    bus.run()
    assert gone == [None]
    if asking == 3:
        (second,) = again
    else:
        # The leader knew nothing of it yet.
        assert again == [first]
        outcomes = assign(bus.nodes[2], first.uri)
        bus.run()
        (second,) = outcomes
    assert isinstance(second, QueueInfo)
    assert second.key != first.key
    assert [(len(c.assigned), len(c.unassigned)) for c in bus.nodes[2].changes[before:]] == [(0, 1), (1, 0)]
    assert_agreement(bus)


@pytest.mark.parametrize("asking", [1, 3])
def test_only_the_primary_of_a_queue_has_it_unassigned(asking: int) -> None:
    bus = cluster(partition_count=3, spread=True)
    info = queue_of(bus, 2)
    outcomes, done = collector()
    bus.nodes[asking].metadata.unassign(info, done)
    bus.run()
    (refusal,) = outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.status.message == f"Node {asking} is not the primary of partition {info.partition_id}"
    assert info.uri in bus.nodes[3].metadata.state.queues


def test_apps_are_updated_at_the_leader_only() -> None:
    bus = cluster()
    assign(bus.nodes[1], "bmq://fanout/q")
    bus.run()
    outcomes, done = collector()
    bus.nodes[1].metadata.update_apps("bmq://fanout/q", "fanout", ["baz"], ["foo"], done)
    (refusal,) = outcomes
    assert isinstance(refusal, Refusal)
    outcomes.clear()
    bus.nodes[3].metadata.update_apps("bmq://fanout/q", "fanout", ["baz", "bar"], ["foo", "none"], done)
    assert outcomes == []
    bus.run()
    assert outcomes == [None]
    for node in bus.nodes.values():
        info = node.metadata.state.queues["bmq://fanout/q"]
        assert [app.app_id for app in info.app_ids] == ["bar", "baz"]
        assert [change.updated for change in node.changes][-1] == (info,)
    assert_agreement(bus)


# -- nodes and leaders that are lost


def test_the_leader_reassigns_the_partitions_of_a_lost_node() -> None:
    bus = cluster(partition_count=3, spread=True)
    assert bus.nodes[3].primaries == {0: (1, 1), 1: (2, 1), 2: (3, 1)}
    bus.kill(1)
    assert bus.nodes[3].primaries[0] == (None, 1)
    assert bus.nodes[2].primaries[0] == (None, 1)
    bus.run()
    assert bus.nodes[2].primaries == bus.nodes[3].primaries == {0: (2, 2), 1: (2, 1), 2: (3, 1)}
    bus.restart(1)
    bus.connect()
    bus.nodes[1].metadata.leader_changed(3, 1)
    bus.run()
    assert bus.nodes[1].primaries == bus.nodes[3].primaries
    assert_agreement(bus)


def test_a_lease_that_records_have_is_left_behind() -> None:
    """A leader that lost its disk gives lease 1 once more; a replica shows it records of lease 7."""
    bus = cluster()
    (leader,) = [node for node in bus.nodes.values() if node.metadata.is_active_leader]
    before = leader.metadata.primary_of(0)
    for node in bus.nodes.values():
        if node is not leader:
            node.metadata.lease_outdated(0, 7)
    bus.run()
    assert leader.metadata.primary_of(0) == before, "a follower assigns none"
    leader.metadata.lease_outdated(0, 7)
    bus.run()
    assert [node.metadata.primary_of(0) for node in bus.nodes.values()] == [(leader.node_id, 8)] * 3


def test_a_stopping_node_hands_its_partitions_over() -> None:
    bus = cluster(partition_count=3, spread=True)
    for node in bus.nodes.values():
        node.metadata.node_status(2, NodeStatus.STOPPING)
    bus.run()
    assert bus.nodes[1].primaries == {0: (1, 1), 1: (1, 2), 2: (3, 1)}
    assert_agreement(bus)


def test_a_node_that_says_that_it_is_unavailable_is_as_good_as_lost() -> None:
    bus = cluster(partition_count=3, spread=True)
    for node in bus.nodes.values():
        if node.node_id != 2:
            node.metadata.node_status(2, NodeStatus.UNAVAILABLE)
    assert bus.nodes[1].primaries[1] == (None, 1)
    bus.run()
    assert bus.nodes[1].primaries == {0: (1, 1), 1: (1, 2), 2: (3, 1)}
    assert_agreement(bus)


def test_a_new_leader_takes_over_what_the_old_one_had() -> None:
    bus = cluster()
    assign(bus.nodes[1])
    bus.run()
    bus.kill(3)
    assert bus.nodes[1].metadata.fsm_state is State.UNKNOWN
    bus.elect(1)
    bus.run()
    assert bus.healed == [1, 2]
    assert bus.nodes[2].primaries == {0: (1, 2)}
    assert list(bus.nodes[2].metadata.state.queues) == [QUEUE]
    bus.restart(3)
    bus.connect()
    bus.nodes[3].metadata.leader_changed(1, bus.term)
    bus.run()
    assert bus.nodes[3].primaries == {0: (1, 2)}
    assert_agreement(bus)


def test_a_primary_that_serves_stays_when_the_leader_changes() -> None:
    bus = cluster()
    bus.elect(1)
    bus.run()
    assert bus.nodes[1].metadata.is_active_leader
    assert {node.primaries[0] for node in bus.nodes.values()} == {(3, 1)}


def test_the_partitions_of_a_leader_that_fell_silent_do_not_wait_for_its_links() -> None:
    bus = cluster()
    for node_id in (1, 2):
        bus.nodes[node_id].metadata.node_silent(3)
    bus.elect(1, 1, 2)
    bus.run()
    assert bus.nodes[1].primaries == bus.nodes[2].primaries == {0: (1, 2)}
    # It was not dead.
    bus.nodes[3].metadata.leader_changed(1, bus.term)
    for node_id in (1, 2):
        bus.nodes[node_id].metadata.node_heard(3)
    bus.run()
    assert bus.nodes[3].primaries == {0: (1, 2)}
    assert_agreement(bus)


def test_a_leader_that_was_silent_and_is_back_in_time_keeps_its_partitions() -> None:
    bus = cluster()
    bus.nodes[1].metadata.node_silent(3)
    bus.nodes[1].metadata.node_heard(3)
    bus.elect(1)
    bus.run()
    assert {node.primaries[0] for node in bus.nodes.values()} == {(3, 1)}


def test_a_leader_that_is_behind_asks_who_is_ahead() -> None:
    bus = cluster()
    bus.kill(1)
    assign(bus.nodes[2])
    bus.run()
    bus.kill(3)
    bus.restart(1)
    bus.connect(1, 2)
    bus.elect(1)
    bus.run()
    assert bus.healed == [1, 2]
    assert list(bus.nodes[1].metadata.state.queues) == [QUEUE]
    assert bus.nodes[2].primaries == {0: (1, 2)}


def test_record_of_one_follower_survives_the_leader() -> None:
    """The queue's asker hears nothing before the leader dies; a follower that has the record hands it on."""
    bus = cluster()
    assign(bus.nodes[3])
    bus.step()
    bus.kill(3)
    bus.elect(1)
    bus.run()
    assert list(bus.nodes[2].metadata.state.queues) == [QUEUE]


def test_record_that_no_follower_has_is_forgotten() -> None:
    bus = cluster()
    outcomes = assign(bus.nodes[3])
    bus.kill(3)
    bus.elect(1)
    bus.run()
    assert bus.nodes[2].metadata.state.queues == {}
    node = bus.restart(3)
    assert list(node.metadata.state.queues) == [QUEUE]
    assert assign(node) == []
    bus.connect()
    node.metadata.leader_changed(1, bus.term)
    bus.run()
    assert outcomes == []
    assert_agreement(bus)
    assert list(node.metadata.state.queues) == [QUEUE]


def test_request_for_a_queue_is_answered_under_the_next_leader() -> None:
    bus = cluster()
    asked = [assign(bus.nodes[1]), assign(bus.nodes[2], "bmq://fanout/q")]
    bus.kill(3)
    bus.run(2000)
    assert asked == [[], []]
    bus.elect(2)
    bus.run()
    assert all(isinstance(outcomes[0], QueueInfo) for outcomes in asked)


def test_a_change_under_way_is_refused_when_the_lead_is_lost() -> None:
    bus = cluster()
    assign(bus.nodes[1], "bmq://fanout/q")
    bus.run()
    outcomes, done = collector()
    bus.nodes[3].metadata.update_apps("bmq://fanout/q", "fanout", ["baz"], [], done)
    bus.nodes[3].metadata.leader_changed(None, 1)
    (refusal,) = outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.status.code == -200


def test_a_whole_cluster_that_restarts_has_higher_leases() -> None:
    bus = cluster(partition_count=2)
    assign(bus.nodes[1])
    bus.run()
    for node_id in bus.ids:
        bus.kill(node_id)
    for node_id in bus.ids:
        bus.restart(node_id)
    bus.connect()
    bus.elect(3)
    bus.run()
    assert bus.nodes[1].primaries == {0: (3, 2), 1: (3, 2)}
    assert_agreement(bus)


def test_a_follower_that_lost_its_link_misses_nothing() -> None:
    bus = cluster()
    bus.cut(2, 3)
    assert bus.nodes[2].metadata.fsm_state is State.UNKNOWN
    assign(bus.nodes[1])
    bus.run()
    bus.connect()
    bus.run()
    assert bus.healed == [1, 2, 3]
    assert_agreement(bus)


def test_one_that_sees_the_primary_again_need_not_ask() -> None:
    bus = cluster()
    bus.elect(1)
    bus.run()
    seen = bus.nodes[2].primaries
    bus.cut(2, 3)
    assert seen == {0: (None, 1)}
    assert bus.nodes[1].primaries == {0: (3, 1)}
    bus.connect()
    assert bus.nodes[2].primaries == {0: (3, 1)}
