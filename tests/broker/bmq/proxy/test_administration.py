"""Admin commands at a proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.bmq.admin.answers.results import ClusterInfo, ClusterNode
from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from tests.broker.bmq.proxy.test_cluster import NODES, Place
from tests.broker.bmq.proxy.test_proxy import FANOUT
from tests.broker.bmq.rig import ACK, WRITE, guid

AT = "CLUSTERS CLUSTER local"


class Administered(Place):
    """A message is with a consumer at the proxy."""

    def __init__(self) -> None:
        super().__init__()
        nodes = tuple(ClusterNode(node.name, node.id, "") for node in NODES)
        environment = Environment({}, (ClusterInfo("remote", "local", nodes),), "proxy", "", lambda name: True)
        self.admin = Admin(CommandContext(self.proxy.node, environment))
        self.producer.open(0, FANOUT, WRITE | ACK)
        self.consumer.read(0, FANOUT, "foo", 1)
        self.producer.post(0, guid(1), b"1234")

    def ask(self, command: str, status: int = 0) -> str:
        found, text = self.admin.run(command, "test")
        assert found == status, text
        return text

    def json(self, command: str) -> Any:
        return json.loads(self.ask(f"ENCODING JSON_COMPACT {command}"))


@pytest.fixture
def it() -> Administered:
    return Administered()


def test_status(it: Administered) -> None:
    lines = it.ask(f"{AT} STATUS").splitlines()
    assert lines[:5] == [
        "Cluster",
        "-------",
        "    Cluster name: Cluster (local)",
        "    Active node : [node2, 2]",
        "    Is Healthy  : Yes",
    ]
    assert "    Num Queues: 1" in lines
    found = it.json(f"{AT} STATUS")["clusterProxyStatus"]
    assert found["activeNodeDescription"] == "[node2, 2]"
    assert found["nodeStatuses"]["nodes"][0] == {
        "description": "[node0, 0]",
        "isAvailable": True,
        "status": "E_AVAILABLE",
    }
    (queue,) = found["queuesInfo"]["storages"]
    assert (queue["queueUri"].replace("\\", ""), queue["partitionId"], queue["numMessages"]) == (FANOUT, -1, 1)
    for number in range(3):
        it.tree.cut(it.links[number])
    found = it.json(f"{AT} STATUS")["clusterProxyStatus"]
    assert not found["isHealthy"]
    assert "activeNodeDescription" not in found
    assert {node["status"] for node in found["nodeStatuses"]["nodes"]} == {"E_UNAVAILABLE"}
    assert "    Active node : * none *" in it.ask(f"{AT} HEALTH").splitlines()


def test_queue_helper(it: Administered) -> None:
    found = it.json(f"{AT} QUEUEHELPER")["clusterQueueHelper"]
    assert (found["locality"], found["numQueues"]) == ("remote", 1)
    (queue,) = found["queues"]
    assert queue["subIds"] == [{"subId": 1, "appId": "foo"}]
    assert queue["primaryNodeDescription"] == " (active: [node2, 2])"


def test_a_queue_and_its_domain(it: Administered) -> None:
    assert FANOUT in it.ask("DOMAINS DOMAIN fanout QUEUE q INTERNALS")
    assert guid(1).hex().upper() in it.ask("DOMAINS DOMAIN fanout QUEUE q LIST 0 10")
    assert FANOUT in it.ask("DOMAINS DOMAIN fanout INFOS")
    assert FANOUT in it.ask("STAT SHOW") or "foo" in it.ask("STAT SHOW")


@pytest.mark.parametrize(
    "command",
    [
        "DOMAINS DOMAIN fanout PURGE",
        "DOMAINS DOMAIN fanout QUEUE q PURGE foo",
        "DOMAINS REMOVE fanout",
        "DOMAINS DOMAIN unused INFOS",
        f"{AT} STORAGE SUMMARY",
        f"{AT} STORAGE PARTITION 0 SUMMARY",
        f"{AT} STORAGE PARTITION 0 ROLLOVER",
        f"{AT} STORAGE DOMAIN fanout QUEUE_STATUS",
        f"{AT} STATE ELECTOR SET QUORUM 2",
        f"{AT} STORAGE REPLICATION GET QUORUM",
        "CLUSTERS CLUSTER other STATUS",
        "CLUSTERS CLUSTER other QUEUEHELPER",
        "CLUSTERS CLUSTER other FORCE_GC_QUEUES",
    ],
)
def test_commands_for_nodes_are_refused_by_a_proxy(it: Administered, command: str) -> None:
    assert it.ask(command, -2)
    assert [push.payload for push in it.consumer.pushes()] == [b"1234"]
    it.consumer.confirm(0, guid(1), sub_id=1)
    assert not it.world.nodes[0].rig.node.queues[FANOUT].apps["foo"].messages


@pytest.mark.parametrize("command", ["HELP", "CLUSTERS LIST", f"{AT} FORCE_GC_QUEUES", "DOMAINS RECONFIGURE fanout"])
def test_commands_that_change_nothing_at_a_proxy(it: Administered, command: str) -> None:
    assert it.ask(command)
    assert it.producer.post(0, guid(2), b"2") == 0
    # It is a fanout queue still.
    assert len(it.consumer.pushes()) == 2
    it.consumer.read(0, FANOUT, "bar", 2)
