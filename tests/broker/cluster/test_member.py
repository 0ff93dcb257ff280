from __future__ import annotations

from tests.broker.cluster.member_bus import Members


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
