"""A payload that rots under a node of a cluster: it is fetched from another, whole, before anybody gets it."""

from __future__ import annotations

import pytest

from broker.bmq.replication.mending import RETRY_MS
from broker.bmq.replication.partition_table import State
from tests.broker.bmq.member.member_bus import MemberClient, Members, members
from tests.broker.bmq.rig import ACK, WRITE, guid

QUEUE = "bmq://priority/q"
ALL = [b"message %d" % number for number in range(6)]


def filled(primary_id: int = 0) -> Members:
    cluster = members()
    assert cluster.leader.node_id == primary_id
    producer = cluster.connect(primary_id)
    producer.open(1, QUEUE, WRITE | ACK)
    for number, payload in enumerate(ALL):
        producer.put(1, guid(number), payload)
    cluster.run()
    assert len(producer.acks()) == len(ALL)
    return cluster


def reader(cluster: Members, node_id: int) -> MemberClient:
    client = cluster.connect(node_id)
    client.read(1, QUEUE)
    cluster.run()
    return client


def rot(cluster: Members, node_id: int, number: int, at: int = 14) -> None:
    queue = cluster.queue(0, QUEUE)
    assert queue is not None
    # All nodes have it at the same place.
    offset = queue.messages[guid(number)].offset
    cluster.processes[node_id].node.partitions[0].files.data.buffer[offset + at] ^= 1


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "ALARM [STORAGE]" in record.getMessage()]


@pytest.mark.parametrize("at", [4, 6, 14])
def test_the_primary_fetches_it_and_its_copy_is_whole_again(at: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster = filled()
    for number in (1, 3):
        rot(cluster, 0, number, at)
    assert cluster.faults() != []
    client = reader(cluster, 0)
    assert client.payloads() == ALL
    assert cluster.faults() == []
    assert len(told(caplog)) == 2
    assert "until another node has supplied it" in told(caplog)[0]
    assert cluster.processes[0].member.partitions[0].state is State.PRIMARY_HEALED


def test_it_is_whole_for_the_consumers_of_other_nodes_too() -> None:
    cluster = filled()
    rot(cluster, 0, 2)
    assert reader(cluster, 1).payloads() == ALL


def test_a_second_replica_is_asked_when_the_first_has_it_no_better() -> None:
    cluster = filled()
    rot(cluster, 0, 2)
    rot(cluster, 1, 2)
    assert reader(cluster, 0).payloads() == ALL


def test_payload_that_no_node_has_is_withheld_and_requested_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = filled()
    for node_id in cluster.ids:
        rot(cluster, node_id, 2)
    client = reader(cluster, 0)
    assert client.payloads() == [payload for payload in ALL if payload != ALL[2]]
    assert "It is withheld" in told(caplog)[-1]
    rot(cluster, 1, 2)  # whole again
    cluster.run(RETRY_MS + 1000)
    assert client.payloads() == [ALL[2]]
    assert guid(2) in cluster.queue(0, QUEUE).messages  # type: ignore[union-attr]
    client.confirm(1, guid(2))
    assert guid(2) not in cluster.queue(0, QUEUE).messages  # type: ignore[union-attr]


def test_a_replica_that_has_rotten_payloads_receives_all_anew(caplog: pytest.LogCaptureFixture) -> None:
    cluster = filled()
    rot(cluster, 1, 3)
    client = reader(cluster, 1)
    cluster.run(5000)
    assert sorted(client.payloads()) == sorted(ALL)
    assert cluster.faults() == []
    replica = cluster.processes[1]
    assert replica.member.partitions[0].state is State.REPLICA_HEALED
    assert [name.rsplit("_", 1)[1] for name, _ in replica.directory.damaged] == ["qlist", "data", "journal"]
    assert len(told(caplog)) == 1
    for number in range(6):
        client.confirm(1, guid(number))
    cluster.run()
    assert not cluster.queue(0, QUEUE).messages  # type: ignore[union-attr]


def test_a_replica_whose_primary_dies_while_it_receives_anew_goes_on_with_what_it_had() -> None:
    cluster = filled()
    rot(cluster, 1, 3)
    replica = cluster.processes[1]
    partition = replica.member.partitions[0]
    assert partition.read(cluster.queue(0, QUEUE).key, guid(3)) is None  # type: ignore[union-attr]
    cluster.now.ms += 10
    replica.node.tick()
    assert partition.copy.records.is_fresh or partition.state is State.REPLICA_WAITING
    disk = cluster.kill(0)
    assert partition.position.sequence_number > 0
    cluster.run(5000)
    # Two are left, and what one of them lacks the other has.
    client = reader(cluster, 2)
    cluster.run(5000)
    assert sorted(client.payloads()) == sorted(ALL)
    cluster.start(0, disk)
    cluster.run(5000)
    assert cluster.faults() == []
