"""Statistics as lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from broker.bmq.admin.statistics_lines import statistics_lines
from broker.bmq.core.config import DomainConfig, Mode
from tests.broker.bmq.admin.conftest import start_with

QUEUE = "bmq://fanout/q"


def test_a_line_for_each_queue_app_and_cluster() -> None:
    node = start_with(DomainConfig("fanout", Mode.FANOUT, ("bar", 'f"oo'), queue_messages_max=100))
    node.producer(QUEUE, [10] * 3)
    lines = list(statistics_lines(node.rig.node, 7))
    assert all(line.endswith("}\n") and line.count("\n") == 1 for line in lines)
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert {line["stat_id"] for line in found} == {7}
    assert len({line["ts"] for line in found}) == 1
    queue, *apps, cluster, partition = found
    assert [each["stat"] for each in found] == ["queue", "queue_app", "queue_app", "cluster", "cluster_partition"]
    assert (queue["domain"], queue["queue"]) == ("fanout", "q")
    # As in the reference, values are texts, and zeros are left out.
    assert (queue["queue_put_msgs_abs"], queue["queue_put_bytes"], queue["queue_cfg_msgs"]) == ("3", "30", "100")
    assert (queue["queue_role"], queue["queue_producers_count"]) == ("1", "1")
    assert "queue_push_msgs" not in queue
    assert [(app["app"], app["queue_msgs_current"]) for app in apps] == [("bar", "3"), ('f"oo', "3")]
    assert (cluster["cluster"], cluster["cluster_status"], cluster["cluster_leader_status"]) == ("local", "1", "1")
    assert (partition["partition"], partition["partition_primary_status"]) == ("partition0", "2")
    assert int(partition["partition_sequence_number"]) == node.rig.node.partitions[0].sequence_number
