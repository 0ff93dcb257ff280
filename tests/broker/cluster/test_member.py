from __future__ import annotations

from broker.core.config import DomainConfig, Mode
from formats.codes import AckStatus
from formats.control.messages import ControlMessage, OpenQueue, OpenQueueResponse
from tests.broker.cluster.member_bus import Members, members
from tests.broker.rig import ACK, READ, WRITE, guid, handle

QUEUE = "bmq://priority/q"


def test_however_few_may_elect_a_majority_keeps() -> None:
    members = Members(elector_quorum=1)
    members.kill(1)
    members.kill(2)
    alone = members.processes[0]
    members.until(lambda: alone.member.election.leader_id == 0)
    members.run(60_000)
    assert not alone.member.metadata.healed
    assert all(shard.is_cut_off for shard in alone.node.shards.values())
    assert {partition.quorum for partition in alone.member.partitions.values()} == {2}


def test_an_operator_lets_a_minority_go_on() -> None:
    """Messages of eventual consistency are acknowledged then; those of strong consistency still wait for a majority."""
    cluster = Members()
    cluster.domains["strong"] = DomainConfig("strong", Mode.PRIORITY, strong=True)
    cluster.until(lambda: all(each.member.partitions[0].is_healed for each in cluster.processes.values()))
    leader = cluster.leader
    leader.node.set_elector_quorum(1)
    client = cluster.connect(leader.node_id)
    client.open(1, QUEUE, WRITE | ACK)
    strong = "bmq://strong/q"
    client.open(2, strong, WRITE | ACK)
    for node_id in [each for each in cluster.ids if each != leader.node_id]:
        cluster.kill(node_id)
    assert cluster.leader is leader
    for queue_id in (1, 2):
        client.put(queue_id, guid(queue_id), b"x")
    cluster.run()
    assert [(ack.queue_id, ack.status) for ack in client.acks()] == [(1, AckStatus.SUCCESS)]
    leader.node.set_elector_quorum(0)
    client.put(1, guid(3), b"x")
    cluster.run()
    assert client.acks() == []


def test_as_many_agree_as_elect() -> None:
    cluster = members()
    leader = cluster.leader
    leader.node.set_elector_quorum(4)
    client = cluster.connect(1)
    client.send(
        client._schema_event(ControlMessage(r_id=1, choice=OpenQueue(handle_parameters=handle(1, QUEUE, READ))))
    )
    cluster.run(10_000)
    assert client._pick(ControlMessage) == []
    assert cluster.leader is leader
    leader.node.set_elector_quorum(0)
    cluster.run()
    (answer,) = client._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)
