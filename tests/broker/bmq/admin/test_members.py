"""Answers of a cluster's members about partitions served by others, and their log lines about each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.bmq.admin.answers.results import ClusterInfo, ClusterNode
from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from tests.broker.bmq.member.member_bus import Members, members
from tests.broker.bmq.rig import ACK, READ, WRITE, guid

QUEUE = "bmq://priority/q"
STORAGE = "CLUSTERS CLUSTER local STORAGE"


def ask(cluster: Members, node_id: int, command: str, status: int = 0) -> str:
    """A node's answer to a command, which has that status."""
    process = cluster.processes[node_id]
    nodes = tuple(ClusterNode(f"host{each}", each, "UNSPECIFIED") for each in cluster.ids)
    known = ClusterInfo("local", "local", nodes)
    environment = Environment({}, (known,), f"host{node_id}", "/store", lambda name: True)
    found, text = Admin(CommandContext(process.node, environment)).run(command, "test")
    assert found == status, text
    cluster.run()
    return text


def summary(cluster: Members, node_id: int) -> Any:
    found = json.loads(ask(cluster, node_id, f"ENCODING JSON_COMPACT {STORAGE} SUMMARY"))
    (store,) = found["clusterStorageSummary"]["fileStores"]
    return store["summary"]


def test_a_replica_tells_what_it_has_a_copy_of() -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    for number, size in enumerate((100, 200, 300)):
        client.put(1, guid(number), b"x" * size)
    cluster.run()
    consumer = cluster.connect(2)
    consumer.read(1, QUEUE)
    cluster.run()
    consumer.confirm(1, guid(1))
    cluster.run()
    found = [summary(cluster, node_id) for node_id in cluster.ids]
    (content,) = {json.dumps(each["storageContent"], sort_keys=True) for each in found}
    (queue,) = json.loads(content)["storages"]
    assert (queue["queueUri"], queue["numMessages"], queue["numBytes"]) == (QUEUE, 2, 400)
    assert {each["primaryNodeDescription"] for each in found} == {"[host0, 0]"}
    # A hop lists what its consumers have.
    assert "Printing 2 message(s)" in ask(cluster, 2, "DOMAINS DOMAIN priority QUEUE q LIST 0 0")


def test_a_replica_lists_its_copy_of_a_queue_that_nobody_has_open_there() -> None:
    cluster = members()
    client = cluster.connect(0)
    client.open(1, QUEUE, WRITE | ACK)
    for number in range(4):
        client.put(1, guid(number), b"x" * (10 + number))
        cluster.run(1000)
    consumer = cluster.connect(0)
    consumer.read(1, QUEUE)
    consumer.confirm(1, guid(1))
    cluster.run()
    for words in ("0 UNLIMITED", "1 1", "-2 1", "2 -1", "9 1"):
        command = f"DOMAINS DOMAIN priority QUEUE q LIST {words}"
        assert ask(cluster, 2, command) == ask(cluster, 0, command)
    assert guid(3).hex().upper() in ask(cluster, 2, "DOMAINS DOMAIN priority QUEUE q LIST 2 1")
    refused = ask(cluster, 2, "DOMAINS DOMAIN priority QUEUE q LIST foo 0 1", -2)
    assert refused == (
        f"Not listing messages of an app of queue '{QUEUE}'  with primary node: [host0, 0][reason: queue is NOT local]"
    )
    assert "was not found" in ask(cluster, 2, "DOMAINS DOMAIN priority QUEUE r LIST 0 1", -2)


def test_a_replica_lists_messages_that_a_rollover_moves() -> None:
    cluster = members()
    client = cluster.connect(0)
    client.open(1, QUEUE, WRITE | ACK)
    for number in range(3):
        client.put(1, guid(number), b"x")
    cluster.run(2000)
    ask(cluster, 0, f"{STORAGE} PARTITION 0 ROLLOVER")
    client.put(1, guid(3), b"x")
    cluster.run()
    command = "DOMAINS DOMAIN priority QUEUE q LIST 0 UNLIMITED"
    assert ask(cluster, 2, command) == ask(cluster, 0, command)
    assert "Printing 4 message(s)" in ask(cluster, 2, command)


def statistics(cluster: Members, node_id: int, uri: str) -> Any:
    found = json.loads(json.loads(ask(cluster, node_id, "ENCODING JSON_COMPACT STAT SHOW"))["stats"])
    return found["domainQueues"]["domains"]["fanout"][uri]


def test_a_new_primary_needs_nothing_of_messages_that_are_gone() -> None:
    cluster = members()
    client = cluster.connect(0)
    client.open(1, QUEUE, WRITE | ACK)
    ends = [cluster.processes[1].member.partitions[0].stored.files.data_end]
    for number in range(2):
        client.put(1, guid(number), b"xyz")
        cluster.run()
        ends.append(cluster.processes[1].member.partitions[0].stored.files.data_end)
    consumer = cluster.connect(0)
    consumer.read(1, QUEUE)
    consumer.confirm(1, guid(0))
    cluster.run(3000)
    for node_id in (1, 2):
        # The header of the DATA record says that it goes beyond the end of the file.
        data = cluster.processes[node_id].member.partitions[0].stored.files.data.buffer
        data[ends[0] : ends[0] + 4] = b"\x1f\xff\xff\xff"
    cluster.kill(0)
    cluster.until(lambda: any(each.member.partitions[0].stored.active for each in cluster.processes.values()))
    (node_id,) = (key for key, each in cluster.processes.items() if each.member.partitions[0].stored.active)
    assert cluster.processes[node_id].node.queues[QUEUE].messages.keys() == {guid(1)}


def test_a_new_primary_tells_what_was_there_before_it_was_one() -> None:
    uri = "bmq://fanout/q"
    cluster = members()
    client = cluster.connect(1)
    client.open(1, uri, WRITE | ACK)
    for number in range(32):
        client.put(1, guid(number), b"xyz")
    cluster.run()
    for app, count in (("foo", 32), ("bar", 22)):
        consumer = cluster.connect(1)
        consumer.read(1, uri, app, 1)
        cluster.run()
        consumer.confirm(1, *map(guid, range(count)), sub_id=1)
        cluster.run()
    said = ask(cluster, 0, "DOMAINS DOMAIN fanout QUEUE q PURGE foo")
    assert "Purged 0 message(s)" in said
    before = statistics(cluster, 0, uri)
    cluster.run(3000)
    cluster.kill(0)
    cluster.until(lambda: any(each.member.partitions[0].stored.active for each in cluster.processes.values()))
    cluster.run(2000)
    (node_id,) = (key for key, each in cluster.processes.items() if each.member.partitions[0].stored.active)
    after = statistics(cluster, node_id, uri)
    for name in ("content_msgs", "content_bytes", "msgs_current", "history_abs", "msgs_utilization_max"):
        assert after["values"][f"queue_{name}"] == before["values"][f"queue_{name}"], name
    for app in ("foo", "bar"):
        for name in ("content_msgs", "content_bytes", "msgs_current"):
            found = after["appIds"][app]["values"][f"queue_{name}"]
            assert found == before["appIds"][app]["values"][f"queue_{name}"], (app, name)
        assert after["appIds"][app]["values"]["queue_queue_time_max"] > 0
    assert after["appIds"]["foo"]["values"]["queue_content_msgs"] == 32
    # Its own operations are counted from zero.
    assert [after["values"][f"queue_{name}"] for name in ("put_msgs_abs", "confirm_msgs_abs")] == [0, 0]


def test_only_the_primary_rolls_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    refused = ask(cluster, 1, f"{STORAGE} PARTITION 0 ROLLOVER", -2)
    assert "Rollover rejected: node is not primary for this partition" in refused
    assert "ROLLOVER COMPLETE" not in caplog.text
    ask(cluster, 0, f"{STORAGE} PARTITION 0 ROLLOVER")
    client.put(1, guid(1), b"x")
    cluster.run()
    assert caplog.text.count("ROLLOVER COMPLETE") == 3
    assert cluster.faults() == []


def test_only_primaries_collect_queues() -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.close(1, QUEUE, WRITE | ACK)
    cluster.run()
    refused = ask(cluster, 1, "CLUSTERS CLUSTER local FORCE_GC_QUEUES", -2)
    assert "Failed to execute command (rc: -2)" in refused
    assert QUEUE in cluster.processes[0].node.queues
    assert "SUCCESS" in ask(cluster, 0, "CLUSTERS CLUSTER local FORCE_GC_QUEUES")
    assert QUEUE not in cluster.processes[0].node.queues


@pytest.mark.parametrize("is_read_there", [False, True])
@pytest.mark.parametrize("command", ["PURGE", "QUEUE q PURGE *"])
def test_only_the_primary_purges(command: str, *, is_read_there: bool) -> None:
    cluster = members()
    client = cluster.connect(0)
    client.open(1, QUEUE, WRITE | ACK)
    consumer = cluster.connect(1)
    if is_read_there:
        consumer.read(1, QUEUE)
    client.put(1, guid(1), b"x")
    cluster.run()
    said = ask(cluster, 1, f"DOMAINS DOMAIN priority {command}")
    assert said.startswith("Purged 0 message(s) for a total of 0  B from 1 queue(s):")
    assert f"Not purging queue '{QUEUE}'  with primary node: [host0, 0][reason: queue is NOT local]" in said
    assert "Printing 1 message(s)" in ask(cluster, 0, "DOMAINS DOMAIN priority QUEUE q LIST 0 0")
    if is_read_there:
        # Messages that the hop holds for its consumers stay there until confirmed.
        consumer.confirm(1, guid(1))
        cluster.run()
        assert "Printing 0 message(s)" in ask(cluster, 0, "DOMAINS DOMAIN priority QUEUE q LIST 0 0")
    cluster.until(lambda: cluster.processes[0].member.partitions[0].is_primary)
    assert "Not purging" not in ask(cluster, 0, f"DOMAINS DOMAIN priority {command}")


def test_a_primary_that_stops_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members()
    cluster.connect(1).open(1, QUEUE, READ)
    caplog.set_level("INFO")
    cluster.leader.member.stop()
    cluster.run()
    advisory = "[ partitionId = 0 primaryLeaseId = 1 status = E_PASSIVE ]"
    said = f"received primary status advisory: {advisory}, from: [node0, 0]"
    assert caplog.text.count(said) == 2
    cluster.kill(0)
    cluster.until(lambda: any(each.member.partitions[0].is_primary for each in cluster.processes.values()))
    cluster.run()
    assert caplog.text.count("is back to healthy state") == 2
