"""Leases that a cluster gives again: a majority lost its disks and the ledger with them, one node has its records."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from broker.bmq.consensus.primaries import LEASE_TOLD_MAX
from broker.bmq.replication.positions import history
from formats.bmq.codes import AckStatus, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    PartitionMessage,
    PartitionSequenceNumber,
    PrimaryStateRequest,
    PrimaryStatus,
    PrimaryStatusAdvisory,
    ReplicaStateResponse,
)
from formats.bmq.wire.event import build_schema_event, iter_frames, schema_message
from tests.broker.bmq.member.member_bus import Members, Process, members
from tests.broker.bmq.rig import ACK, WRITE, guid
from tests.broker.fakes import MemoryDirectory

HIGHEST = (1 << 32) - 1
QUEUES = [f"bmq://priority/q{number}" for number in range(2)]


def leases(process: Process) -> list[int]:
    return [process.member.metadata.primary_of(each)[1] for each in process.member.partitions]


def is_served(cluster: Members) -> bool:
    processes = cluster.processes.values()
    return all(partition.is_served for each in processes for partition in each.member.partitions.values())


def lose_majority(cluster: Members, kept: int) -> None:
    """Restart all nodes: one has its partitions, and no ledger; the others have nothing."""
    disks = {node_id: cluster.kill(node_id) for node_id in cluster.ids}
    for name in disks[kept].names():
        if name.startswith("bmq_csl"):
            disks[kept].remove(name)
    for node_id in cluster.ids:
        cluster.start(node_id, disks[node_id] if node_id == kept else MemoryDirectory())


@pytest.mark.parametrize("older", [0, 3])
def test_a_primary_has_the_leader_give_a_lease_above_what_was_written(older: int) -> None:
    """The leader, node 0, is primary of one partition only. The leases of old are as high, or higher by `older`."""
    cluster = members(partition_count=2, spread=True)
    for partition_id in range(2 if older else 0):
        cluster.leader.member.metadata.lease_outdated(partition_id, older)
    cluster.run(1000)
    client = cluster.connect(0)
    for number, uri in enumerate(QUEUES):
        client.open(number, uri, WRITE | ACK)
        client.put(number, guid(number), b"kept by one")
    cluster.run(2000)
    assert [ack.status for ack in client.acks()] == [AckStatus.SUCCESS] * 2
    assert leases(cluster.processes[0]) == [1 + older] * 2
    lose_majority(cluster, 1)
    cluster.until(lambda: is_served(cluster))
    assert {each.member.metadata.primary_of(1)[0] for each in cluster.processes.values()} == {1}
    assert cluster.leader.node_id == 0
    for process in cluster.processes.values():
        assert leases(process) == [2 + older] * 2
        for partition in process.member.partitions.values():
            last, before = history(partition.stored.files)[:2]
            # The lease has sync points only: the first, and one for each other member that comes or is available.
            assert (last.primary_lease_id, before.primary_lease_id) == (2 + older, 1 + older)
            assert 1 <= last.sequence_number <= 5
            assert before.sequence_number > 2, "the records are there that one node had kept"
    assert cluster.faults() == []


def say(cluster: Members, node_id: int, choice: PrimaryStatusAdvisory) -> None:
    """Have a node tell the leader, node 0, what the node's code would not."""
    message = ControlMessage(choice=ClusterMessage(choice=choice))
    cluster.wires[node_id, 0].send_event(build_schema_event(ber.encode(message)))
    cluster.run(3000)


def passive(partition_id: int, lease_id: int) -> PrimaryStatusAdvisory:
    return PrimaryStatusAdvisory(partition_id=partition_id, primary_lease_id=lease_id, status=PrimaryStatus.PASSIVE)


@pytest.mark.parametrize(
    ("node_id", "advisory"),
    [
        (1, passive(1, 1)),  # as every primary says that leaves its office
        (1, passive(1, 0)),
        (1, replace(passive(1, 2), status=PrimaryStatus.ACTIVE)),
        (1, passive(0, 2)),
        (2, passive(1, 2)),
        (1, passive(1, LEASE_TOLD_MAX + 2)),
        (1, passive(1, HIGHEST)),
        (1, passive(7, 2)),
        (1, passive(-1, 2)),
    ],
)
def test_only_its_primary_raises_a_lease(node_id: int, advisory: PrimaryStatusAdvisory) -> None:
    cluster = members(partition_count=2, spread=True)
    say(cluster, node_id, advisory)
    assert [leases(each) for each in cluster.processes.values()] == [[1, 1]] * 3


def test_a_primary_raises_its_lease_by_far_up_to_a_bound_only() -> None:
    cluster = members(partition_count=2, spread=True)
    say(cluster, 1, passive(1, LEASE_TOLD_MAX + 1))
    assert leases(cluster.processes[2]) == [1, LEASE_TOLD_MAX + 1]
    for lease_id in (LEASE_TOLD_MAX + 3, HIGHEST):
        say(cluster, 1, passive(1, lease_id))
        assert leases(cluster.processes[2]) == [1, LEASE_TOLD_MAX + 1]
    say(cluster, 1, passive(1, LEASE_TOLD_MAX + 2))
    assert leases(cluster.processes[2]) == [1, LEASE_TOLD_MAX + 2]
    # One that has lost its disk takes that, too.
    cluster.kill(2)
    cluster.start(2, MemoryDirectory())
    cluster.until(lambda: is_served(cluster))
    assert leases(cluster.processes[2]) == [1, LEASE_TOLD_MAX + 2]


class Boast(deque[bytes]):
    """A link of a node that says that it has records of a lease that nobody has come to."""

    told = 0

    def append(self, event: bytes) -> None:
        data = memoryview(event)
        (frame,) = iter_frames(data, 0, len(data), len(data))
        if frame.type == EventType.CONTROL:
            message = ber.decode(ControlMessage, schema_message(data, frame.body, frame.end))
            match message.choice:
                case ClusterMessage(
                    choice=PartitionMessage(choice=(ReplicaStateResponse() | PrimaryStateRequest()) as said)
                ):
                    self.told += 1
                    number = PartitionSequenceNumber(primary_lease_id=HIGHEST, sequence_number=1)
                    choice = PartitionMessage(choice=replace(said, latest_sequence_number=number))
                    event = build_schema_event(ber.encode(replace(message, choice=ClusterMessage(choice=choice))))
        super().append(event)


def test_a_replica_that_boasts_does_not_keep_its_primary_from_serving(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members(partition_count=2, spread=True)
    wire = cluster.wires[1, 0]
    wire.events = boast = Boast()
    leader = cluster.leader
    leader.member.metadata.lease_outdated(0, 1)
    cluster.until(lambda: leases(leader)[0] == 2 and leader.member.partitions[0].is_primary, 5000)
    assert boast.told > 0
    assert f"it claims records of lease {HIGHEST}, this node has 2" in caplog.text
    wire.events = deque()
    cluster.until(lambda: is_served(cluster))
    assert leases(leader) == [2, 1]
    assert cluster.faults() == []


def test_a_replica_that_boasts_unasked_is_refused() -> None:
    cluster = members(partition_count=2, spread=True)
    number = PartitionSequenceNumber(primary_lease_id=HIGHEST, sequence_number=1)
    request = PrimaryStateRequest(
        partition_id=0,
        primary_lease_id=1,
        latest_sequence_number=number,
        first_sync_point_after_rollover_sequence_number=number,
    )
    partition = cluster.processes[0].member.partitions[0]
    before = partition.progress[1]
    message = ControlMessage(r_id=77, choice=ClusterMessage(choice=PartitionMessage(choice=request)))
    data = memoryview(build_schema_event(ber.encode(message)))
    (frame,) = iter_frames(data, 0, len(data), len(data))
    cluster.processes[0].member.receive(1, data, frame)
    assert partition.progress[1] == before
    cluster.run(1000)
    assert is_served(cluster)
