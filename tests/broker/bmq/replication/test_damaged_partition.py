"""A partition one copy of which has rotted: its node is healed by the others, and is not counted on before."""

from __future__ import annotations

import logging

import pytest

from broker.bmq.replication.partition_table import State
from broker.bmq.store.damage import partition_note
from formats.bmq.control.messages import ClusterMessage, ControlMessage, PrimaryStatus, PrimaryStatusAdvisory
from tests.broker.bmq.replication.partition_bus import Bus, Node

PRIMARY, REPLICA = State.PRIMARY_HEALED, State.REPLICA_HEALED
OFFSETS = {"journal": 44 + 60 + 57, "data": 40 + 12, "qlist": 0}


def rot(bus: Bus, node_id: int, suffix: str = "journal") -> None:
    """A bit rots while a node is down; it notices when it starts."""
    disk = bus.disks[node_id]
    disk.flip(disk.find(suffix), OFFSETS[suffix])


def is_damaged(node: Node) -> bool:
    assert node.stored.damage.is_there == (partition_note(0) in node.directory.names())
    return node.stored.damage.is_there


def filled(count: int = 3, messages: int = 10) -> Bus:
    bus = Bus(count)
    primary = bus.assign(0)
    bus.settle()
    primary.post(*range(messages))
    bus.settle()
    return bus


@pytest.mark.parametrize("suffix", OFFSETS)
def test_a_damaged_replica_is_healed_and_its_files_are_kept(suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    bus = filled()
    bus.kill(1)
    rot(bus, 1, suffix)
    evidence = {name: bytes(content.data) for name, content in bus.disks[1].files.items()}
    bus.restart(1)
    assert is_damaged(bus.nodes[1])
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    assert not is_damaged(bus.nodes[1])
    bus.check_equal()
    assert dict(bus.disks[1].damaged) == evidence
    (text,) = [record.getMessage() for record in caplog.records if "ALARM [RECOVERY]" in record.getMessage()]
    assert "partition 0 is damaged" in text
    assert f"Set aside: /memory/damaged/{bus.disks[1].damaged[0][0]}" in text
    bus.nodes[0].post(10, 11)
    bus.settle()
    bus.check_equal()


def test_a_damaged_node_does_not_make_a_majority_with_one_that_lacks_what_was_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = filled()
    bus.part(2)
    bus.nodes[0].post(10, 11)
    bus.settle()
    assert bus.nodes[0].acked[-2:] == [10, 11]
    bus.kill(0)
    bus.kill(1)
    rot(bus, 1)
    bus.join()
    bus.restart(1)
    bus.assign(2)
    caplog.set_level(logging.ERROR)
    bus.run(65_000)
    assert bus.states() == [State.REPLICA_HEALING, State.PRIMARY_HEALING_STG1]
    assert is_damaged(bus.nodes[1])
    waits = [record.getMessage() for record in caplog.records if "Partition [0] waits for" in record.getMessage()]
    assert any("2 nodes with sound files" in text and "nodes 1 are damaged" in text for text in waits)
    assert any("see bmq_0.damaged" in text for text in waits)
    bus.restart(0)
    bus.run(2000)
    assert bus.states() == [REPLICA, REPLICA, PRIMARY]
    assert not is_damaged(bus.nodes[1])
    bus.check_equal()
    assert len(bus.kept(1)) == 12


def test_a_damaged_node_whose_link_is_lost_does_not_count_when_the_search_begins_again() -> None:
    """The node that has all is lost while it is read: the other one that had it is damaged, and of no help."""
    bus = filled()
    bus.part(2)
    bus.nodes[0].post(10, 11)
    bus.settle()
    bus.kill(0)
    bus.kill(1)
    rot(bus, 1)
    bus.join()
    for node_id in (0, 1):
        bus.start(node_id)
    primary = bus.assign(2)
    # Nothing of what node 0 sends after its position arrives.
    while bus.states()[2] is not State.PRIMARY_HEALING_STG2 or 1 not in primary.partition.progress:
        assert bus.step()
        if bus.states()[2] is State.PRIMARY_HEALING_STG2:
            bus.links[0, 2].clear()
    bus.part(1)
    bus.part(0)
    bus.run(1000)
    assert bus.states()[2] is State.PRIMARY_HEALING_STG1
    bus.kill(0)
    bus.join()
    bus.run(35_000)
    assert bus.states()[1] is State.PRIMARY_HEALING_STG1
    bus.restart(0)
    bus.run(2000)
    assert bus.states() == [REPLICA, REPLICA, PRIMARY]
    assert len(bus.kept(2)) == 12
    bus.check_equal()


def test_a_damaged_node_that_is_made_primary_waits_for_the_one_that_has_it_all() -> None:
    bus = filled()
    bus.part(2)
    bus.nodes[0].post(10, 11)
    bus.settle()
    bus.kill(0)
    bus.kill(1)
    rot(bus, 1)
    bus.join()
    bus.start(1)
    primary = bus.assign(1)
    bus.run(35_000)
    assert primary.partition.state is State.PRIMARY_HEALING_STG1
    bus.restart(0)
    bus.run(2000)
    assert bus.states() == [REPLICA, PRIMARY, REPLICA]
    assert not is_damaged(primary)
    bus.check_equal()
    assert len(bus.kept(1)) == 12
    primary.post(12)
    bus.settle()
    assert primary.acked == [12]


def test_of_two_nodes_the_sound_one_is_enough() -> None:
    """Both nodes had everything that was acknowledged."""
    for primary_id in (0, 1):
        bus = filled(2)
        bus.kill(1)
        rot(bus, 1)
        bus.start(1)
        bus.assign(primary_id)
        bus.run(2000)
        assert bus.states()[primary_id] is PRIMARY
        assert not is_damaged(bus.nodes[1])
        bus.check_equal()
        assert len(bus.kept(1)) == 10


def test_a_minority_of_five_disks_may_rot() -> None:
    bus = filled(5)
    bus.part(4)
    bus.nodes[0].post(10)
    bus.settle()
    for node_id in (0, 1):
        bus.kill(node_id)
        rot(bus, node_id)
    bus.join()
    for node_id in (0, 1):
        bus.start(node_id)
    bus.assign(0)
    bus.run(3000)
    assert bus.states() == [PRIMARY, REPLICA, REPLICA, REPLICA, REPLICA]
    bus.check_equal()
    assert len(bus.kept(4)) == 11


def test_a_node_that_dies_before_it_is_healed_is_still_not_counted_on() -> None:
    """The node dies at each point between finding the damage and being complete again."""
    points = 0
    for steps in range(400):
        bus = filled(messages=4)
        bus.kill(1)
        rot(bus, 1)
        bus.disks[1].steps_left = steps
        try:
            bus.restart(1)
            bus.settle()
        except BaseException as crash:
            if type(crash).__name__ != "Crash":
                raise
        else:
            break
        points += 1
        bus.nodes.pop(1, None)
        bus.disks[1] = bus.disks[1].after_crash()
        node = Node(bus, 1, bus.disks[1])
        # Whatever it starts with: it counts only if it has all.
        assert is_damaged(node) or len(node.partition.copy.recover().messages) == 4, steps
    assert points > 10


def test_a_node_that_died_when_it_was_as_good_as_healed_is_healed_again() -> None:
    bus = filled()
    bus.kill(1)
    bus.disks[1].open(partition_note(0), 10).close()
    node = bus.restart(1)
    assert is_damaged(node)
    assert node.stored.files.journal_end == 44
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    assert not is_damaged(node)
    bus.check_equal()


def test_a_primary_that_is_new_at_a_link_says_that_it_serves() -> None:
    """A damaged node asks only one that does, and may have been away when it began to."""
    bus = filled()
    bus.kill(1)
    rot(bus, 1)
    bus.start(1)
    bus.settle()
    # Only now it learns who is primary.
    bus.nodes[1].partition.primary_changed(0, bus.lease_id)
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    bus.check_equal()


def test_nothing_that_was_ever_acknowledged_is_soon_healed() -> None:
    bus = Bus()
    bus.kill(1)
    bus.disks[1].flip(bus.disks[1].find("journal"), 0)
    bus.start(1)
    bus.assign(1)
    bus.run(2000)
    assert bus.states() == [REPLICA, PRIMARY, REPLICA]
    assert not is_damaged(bus.nodes[1])
    bus.nodes[1].post(1)
    bus.settle()
    bus.check_equal()


def test_a_primary_whose_lease_has_ended_does_not_hide_that_the_new_one_serves() -> None:
    """A primary that has not heard of its successor, and reports itself active after that one has done so."""
    bus = filled()
    bus.kill(1)
    rot(bus, 1)
    bus.assign(2)
    bus.settle()
    # It is linked to both before it hears who is primary.
    late = bus.start(1)
    bus.settle()
    said = PrimaryStatusAdvisory(partition_id=0, primary_lease_id=1, status=PrimaryStatus.ACTIVE)
    late.partition.on_control(0, ControlMessage(choice=ClusterMessage(choice=said)))
    late.partition.primary_changed(2, bus.lease_id)
    bus.settle(500)
    assert not is_damaged(late)
    assert late.partition.state is REPLICA
