"""Clusters and groups as they are measured by the answers of their nodes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import typer

from bmqctl.cli.watch import check
from bmqctl.systems.checking.blazingmq import measure_cluster
from bmqctl.systems.checking.rocketmq import measure_group, measure_view
from bmqctl.systems.checking.verdict import Measured, Status
from bmqctl.systems.rocketmq.status.group import QueueLag
from bmqctl.systems.rocketmq.status.view import Broker, Controller, Name, View
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.clients import MessageQueue
from formats.rocketmq.remoting.bodies.statistics import (
    GroupProgress,
    progress_items,
    read_consume_stats,
    write_consume_stats,
)


def values(measured: Measured) -> dict[str, float | None]:
    return {each.name: each.value for each in measured.values}


def node(number: int, sequence: int, state: str = "REPLICA_HEALED", lease: int = 2, **view: Any) -> dict[str, Any]:
    partition = {
        "partitionId": 0,
        "primaryNodeId": 1,
        "primaryLeaseId": 2,
        "isActive": True,
        "state": state,
        "leaseId": lease,
        "sequenceNumber": sequence,
    }
    own = {"name": "c", "nodeId": number, "term": 3, "quorum": 2, "leaderNodeId": 1, "partitions": [partition]}
    return {"nodeId": number, "isHealthy": True, "view": {**own, **view}}


class Foreign:
    """A connection to a broker that knows a cluster, and no command for its state."""

    def client(self, host: str, port: int) -> AbstractContextManager[Any]:
        return nullcontext(self)

    def send(self, command: str) -> str:
        if command.endswith("CLUSTERS LIST"):
            return '{"clusterList": {"clusters": [{"name": "c", "locality": "member"}]}}'
        return f"Unable to decode command {command}"


def test_a_cluster_whose_node_reports_no_state_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bmqctl.systems.blazingmq.cluster.asking_of", lambda *_: Foreign())
    with pytest.raises(typer.Exit) as ended:
        check.cluster(broker="tcp://node:30114")
    assert ended.value.exit_code == Status.UNKNOWN
    assert capsys.readouterr().out.startswith("CLUSTER UNKNOWN - node:30114 does not report its state: ")


def test_a_cluster_that_is_well() -> None:
    found = measure_cluster([node(1, 90, "PRIMARY_HEALED"), node(2, 90), node(3, 88)])
    assert values(found) == {"problems": 0, "quorum": 1, "without_primary": 0, "in_sync": 3, "behind": 2}
    assert found.summary == "cluster c: 3 of 3 nodes answer, a leader, 0 problems"


def test_copies_that_are_healing_or_at_another_lease_are_not_in_sync() -> None:
    found = measure_cluster([node(1, 90, "PRIMARY_HEALED"), node(2, 10, "REPLICA_HEALING_STG2"), node(3, 80, lease=1)])
    assert (values(found)["in_sync"], values(found)["behind"]) == (1, 0)


def test_a_node_alone_has_no_quorum_and_says_so() -> None:
    lost = [{"nodeId": number, "error": "Connection refused"} for number in (2, 3)]
    found = measure_cluster([node(1, 90, "PRIMARY_HEALED"), *lost])
    assert (values(found)["quorum"], values(found)["problems"]) == (0, 2)
    assert found.details[0] == "node 2 cannot be asked: Connection refused"


def test_a_partition_without_an_active_primary_is_counted() -> None:
    passive = node(1, 90, "PRIMARY_HEALING_STG1")
    passive["view"]["partitions"][0]["isActive"] = False
    assert values(measure_cluster([passive, node(2, 90)]))["without_primary"] == 1


def test_a_group_is_as_far_behind_as_all_queues_together() -> None:
    found = measure_group(
        "orders", "billing", [QueueLag("a", 0, 3, 1500), QueueLag("a", 1, 0, 0), QueueLag("b", 0, 4, 9)]
    )
    assert values(found) == {"lag": 7, "oldest": 1.5}
    assert found.details == ["a/0: 3 messages", "b/0: 4 messages"]


def name(*brokers: Broker, has_controller: bool = True) -> Name:
    return Name("a", "c", 1 if has_controller else None, 1 if has_controller else None, 1, 0, 1, list(brokers))


MASTER = Broker("h:1", 1, True, True, True, True)
SLAVE = Broker("h:2", 2, False, True, True, True, behind=512)


def test_a_cluster_of_rocketmq_with_controllers() -> None:
    leader = Controller("k:1", is_leader=True)
    found = values(measure_view(View([], [leader], [name(MASTER, SLAVE)]), []))
    assert found == {"problems": 0, "quorum": 1, "without_primary": 0, "in_sync": 2, "behind": 512}
    gone = [MASTER._replace(is_alive=False), SLAVE._replace(is_in_sync=False)]
    found = values(measure_view(View([], [Controller("k:1")], [name(*gone)]), []))
    assert (found["quorum"], found["without_primary"], found["in_sync"]) == (0, 1, 1)


def test_a_cluster_of_rocketmq_without_controllers_has_no_quorum_to_measure() -> None:
    found = values(measure_view(View([], [], [name(MASTER, SLAVE, has_controller=False)]), []))
    assert found == {"problems": 0, "without_primary": 0, "in_sync": 2, "behind": 512}


def test_the_progress_of_a_group_is_read_as_it_is_written() -> None:
    queues = {MessageQueue("a", number, "orders"): GroupProgress(9, number, number, 5) for number in range(3)}
    assert read_consume_stats(write_consume_stats(progress_items(queues), 0.5).encode()) == queues


@pytest.mark.parametrize("body", [b"\xff", b"[]", b"{}", b'{"offsetTable":1}', b'{"offsetTable":{"a":{}}}', b"{{}"])
def test_a_damaged_progress_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        read_consume_stats(body)
