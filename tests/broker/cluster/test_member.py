from __future__ import annotations

from formats.control.messages import ControlMessage, OpenQueue, OpenQueueResponse
from tests.broker.cluster.member_bus import Members, members
from tests.broker.rig import READ, handle

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
