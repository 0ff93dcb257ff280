"""The map of a BlazingMQ cluster, of what its nodes answer."""

from __future__ import annotations

from typing import Any

from bmqctl.console.map import blazingmq_map, rocketmq_map
from bmqctl.systems.rocketmq.status.view import Broker, Name, Nameserver, View


def view(
    node: int, role: str = "following", lease: int = 3, sequence: int = 100, primary: int | None = 1
) -> dict[str, Any]:
    partition: dict[str, Any] = {
        "partitionId": 0,
        "primaryLeaseId": 3,
        "isActive": True,
        "leaseId": lease,
        "sequenceNumber": sequence,
        "waiting": 0,
    }
    if primary is not None:
        partition["primaryNodeId"] = primary
    nodes = [{"nodeId": number, "endpoint": f"h:{number}", "isSelf": number == node} for number in (1, 2, 3)]
    return {
        "nodeId": node,
        "isHealthy": True,
        "view": {
            "name": "east",
            "nodeId": node,
            "status": "AVAILABLE",
            "role": role,
            "leaderNodeId": 1,
            "term": 7,
            "quorum": 2,
            "nodes": nodes,
            "partitions": [partition],
        },
    }


def test_copies_are_in_sync_behind_or_gone() -> None:
    found = blazingmq_map([view(1, "leading"), view(2, sequence=60), {"nodeId": 3, "error": "no broker"}])
    assert (found["name"], found["columns"]) == ("east", ["node 1", "node 2", "node 3"])
    assert [(each["role"], each["state"], each["is_well"]) for each in found["nodes"]] == [
        ("leader", "AVAILABLE", True),
        ("follower", "AVAILABLE", True),
        ("", "UNREACHABLE", False),
    ]
    (shard,) = found["shards"]
    assert (shard["primary"], shard["is_well"], shard["text"]) == ("node 1", True, "active, lease 3")
    assert [(each["role"], each["state"], each["behind"], each["is_well"]) for each in shard["copies"]] == [
        ("primary", "active", None, True),
        ("replica", "40 records behind", 40, True),
        ("gone", "does not answer", None, False),
    ]
    assert [each["text"] for each in found["problems"]] == ["node 3 cannot be asked: no broker"]


def test_a_replica_at_another_lease_and_a_partition_without_a_primary() -> None:
    found = blazingmq_map([view(1, "leading"), view(2, lease=2), view(3)])
    assert [each["state"] for each in found["shards"][0]["copies"]] == [
        "active",
        "not at the primary's lease",
        "in sync",
    ]
    orphan = blazingmq_map([view(number, primary=None) for number in (1, 2, 3)])["shards"][0]
    assert (orphan["primary"], orphan["is_well"]) == (None, False)


def test_problems_name_those_who_see_them() -> None:
    seen = view(2)
    seen["problems"] = ["partition 0 has no quorum"]
    found = blazingmq_map([view(1), seen, view(3)])
    assert found["problems"] == [{"text": "partition 0 has no quorum", "remedy": "", "by": ["node 2"]}]


def test_brokers_of_rocketmq() -> None:
    master = Broker("h:1", 0, True, end=500)
    slaves = [Broker("h:2", 1, False, end=500, behind=0), Broker("h:3", 2, False, end=300, behind=200)]
    gone = Broker("h:5", 1, False, error="no answer")
    names = [
        Name("broker-a", "east", None, None, 1, 1 << 20, 2, [master, *slaves]),
        Name("broker-b", "east", None, None, 1, 1 << 20, None, [gone]),
    ]
    found = rocketmq_map(View([Nameserver("h:9", None, {"broker-a": "h:1"})], [], names))
    assert (found["name"], found["columns"]) == ("east", ["master", "slave 1", "slave 2"])
    assert [[each["state"] for each in shard["copies"]] for shard in found["shards"]] == [
        ["h:1", "h:2, in sync", "h:3, 200 bytes behind"],
        ["there is none", "h:5 does not answer", ""],
    ]
    assert [(each["primary"], each["is_well"]) for each in found["shards"]] == [("h:1", True), (None, False)]
    assert [each["role"] for each in found["nodes"]] == ["nameserver", "master", "slave", "slave", "slave"]
    assert any("broker-b" in each["text"] for each in found["problems"])
