"""A ledger that has rotted: its node takes the leader's state, and is not counted on before."""

from __future__ import annotations

import logging

import pytest

from broker.bmq.consensus.cluster_table import Event, State
from broker.bmq.consensus.state_exchange import NOBODY
from broker.bmq.store.damage import LEDGER_NOTE, Damage
from tests.broker.bmq.consensus.metadata_bus import PRIORITY, Bus, cluster, collector


def damage(bus: Bus, node_id: int) -> None:
    """Leave a note of damage and no ledger, like `broker.bmq.assembly.opening`."""
    directory = bus.nodes[node_id].directory
    names = directory.names()
    note = Damage(directory, LEDGER_NOTE)
    note.note("rot")
    note.set_aside(names)


def assign(bus: Bus, node_id: int, uri: str) -> None:
    outcomes, take = collector()
    bus.nodes[node_id].metadata.assign_queue(uri, PRIORITY, take)
    bus.run()
    assert outcomes


def is_damaged(bus: Bus, node_id: int) -> bool:
    node = bus.nodes[node_id]
    assert node.metadata.ledger.damage.is_there == (LEDGER_NOTE in node.directory.names())
    return node.metadata.ledger.damage.is_there


def one_knows_less() -> Bus:
    """A cluster of three where nodes 2 and 3 have agreed on a queue that 1 has not heard of; 2's ledger has rotted."""
    bus = cluster()
    for other in (2, 3):
        bus.cut(1, other)
    assign(bus, 3, "bmq://priority/q")
    bus.kill(2)
    bus.kill(3)
    damage(bus, 2)
    bus.restart(2)
    bus.connect_pair(1, 2)
    return bus


@pytest.mark.parametrize("leader_id", [1, 2])
def test_a_damaged_ledger_does_not_count_among_those_compared(leader_id: int, caplog: pytest.LogCaptureFixture) -> None:
    bus = one_knows_less()
    caplog.set_level(logging.ERROR)
    bus.elect(leader_id)
    bus.run(25_000)
    assert bus.healed == []
    assert bus.nodes[leader_id].metadata.fsm_state is State.LDR_HEALING_STG1
    assert is_damaged(bus, 2)
    texts = [record.getMessage() for record in caplog.records if "ALARM [RECOVERY]" in record.getMessage()]
    assert any("1 of 2 are known, the ledgers of nodes 2 are damaged" in text for text in texts)
    bus.restart(3)
    bus.connect_pair(1, 3)
    bus.connect_pair(2, 3)
    bus.elect(leader_id)
    bus.run(2000)
    assert bus.healed == [1, 2, 3]
    assert not is_damaged(bus, 2)
    assert all("bmq://priority/q" in node.metadata.state.queues for node in bus.nodes.values())


def test_the_damaged_node_asks_a_leader_that_leads_already() -> None:
    bus = cluster()
    assign(bus, 3, "bmq://priority/q")
    bus.kill(2)
    damage(bus, 2)
    node = bus.restart(2)
    bus.connect()
    bus.nodes[2].metadata.leader_changed(3, bus.term)
    bus.run(2000)
    assert bus.healed == [1, 2, 3]
    assert not is_damaged(bus, 2)
    assert node.metadata.state.queues == bus.nodes[3].metadata.state.queues
    assert bus.nodes[2].faults() == []
    again = bus.restart(2)
    assert again.metadata.state.queues.keys() == {"bmq://priority/q"}


def test_of_two_nodes_the_sound_ledger_is_enough() -> None:
    for leader_id in (1, 2):
        bus = cluster(2, leader_id=2)
        assign(bus, 2, "bmq://priority/q")
        bus.kill(2)
        damage(bus, 2)
        bus.restart(2)
        bus.connect()
        bus.elect(leader_id)
        bus.run(3000)
        assert bus.healed == [1, 2]
        assert not is_damaged(bus, 2)
        assert "bmq://priority/q" in bus.nodes[2].metadata.state.queues


def test_a_node_that_dies_before_it_has_the_state_is_still_not_counted_on() -> None:
    bus = one_knows_less()
    bus.elect(1)
    bus.run(3000)
    bus.kill(2)
    bus.restart(2)
    bus.connect_pair(1, 2)
    bus.elect(1)
    bus.run(3000)
    assert is_damaged(bus, 2)
    assert bus.healed == []


def test_a_leader_that_asks_again_is_told_no_number() -> None:
    bus = one_knows_less()
    bus.elect(1)
    bus.run(500)
    leader, damaged = bus.nodes[1].metadata, bus.nodes[2].metadata
    assert damaged.fsm_state is State.FOL_HEALING
    leader._ask_numbers(Event.SLCT_LDR, NOBODY)
    bus.run(100)
    assert leader.fsm_state is State.LDR_HEALING_STG1
    assert bus.healed == []
