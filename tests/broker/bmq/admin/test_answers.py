"""Answers to commands, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from broker.bmq.admin.table import TABLE
from formats.bmq.control.messages import (
    ConfigureStream,
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    StreamParameters,
)
from formats.bmq.control.messages import Subscription as SubscriptionInfo
from tests.broker.bmq.admin.conftest import Administered, start_with
from tests.broker.bmq.rig import ACK, READ, WRITE, guid

PRIORITY = "bmq://priority/q"
FANOUT = "bmq://fanout/q"


def test_help_lists_every_command(node: Administered) -> None:
    text = node.ask("HELP")
    assert text.startswith("This process responds to the following CMD subcommands:\n    HELP [PLUMBING]\n        List")
    assert all(f"\n    {row.words}\n        {row.help}\n" in text for row in TABLE)
    plumbing = node.ask("HELP PLUMBING").splitlines()
    assert plumbing == [f"{row.words} - {row.help}" for row in TABLE]
    found = node.json("HELP")["help"]
    assert found["isPlumbing"] is False
    assert found["commands"][1] == {"command": "BROKERCONFIG DUMP", "description": TABLE[1].help}


def test_json_is_compact_or_pretty(node: Administered) -> None:
    compact = node.ask("ENCODING JSON_COMPACT CLUSTERS LIST")
    assert compact == (
        '{"clusterList":{"clusters":[{"locality":"local","name":"local","nodes":'
        '[{"hostName":"host","nodeId":0,"dataCenter":"UNSPECIFIED"}]}]}}'
    )
    pretty = node.ask(json.dumps({"encoding": "JSON_PRETTY", "clusters": {"list": {}}}))
    assert pretty.startswith('{\n    "clusterList": {\n        "clusters": [\n            {\n')
    assert json.loads(pretty) == json.loads(compact)


def test_invalid_command_is_reported_in_any_encoding(node: Administered) -> None:
    for line in (
        "invalid cmd",
        "ENCODING JSON_COMPACT invalid cmd",
        '{"help": {}, "encoding": "INCORRECT"}',
        "ENCODING",
    ):
        assert node.ask(line, -31).startswith("Unable to decode command (rc: -1, error: '")


def test_the_configuration_of_the_broker(node: Administered) -> None:
    assert json.loads(node.ask("BROKERCONFIG DUMP"))["networkInterfaces"]["tcpInterface"]["port"] == 30114
    assert json.loads(node.json("BROKERCONFIG DUMP")["brokerConfig"]["asJSON"])["brokerInstanceName"] == "rig"


def test_clusters(node: Administered) -> None:
    assert node.ask("CLUSTERS LIST") == (
        "The following clusters are active:\n    [LOCAL ] local:\n        host                0      UNSPECIFIED   \n"
    )
    assert node.ask("CLUSTERS CLUSTER other STATUS", -2) == "cluster 'other' not found !"
    assert node.json("CLUSTERS CLUSTER other STATUS", -2) == {"error": {"message": "cluster 'other' not found !"}}


def test_the_status_of_a_cluster(node: Administered) -> None:
    node.producer(PRIORITY, [10])
    text = node.ask("CLUSTERS CLUSTER local STATUS")
    for line in (
        "    Is Healthy    : Yes",
        "    [host, 0]",
        "        Primary for partitions: [ 0 ]",
        "    Self State            : LEADER",
        "        Num Queues    : mapped (1), active (1)",
        "    Num Queues: 1",
        "            Primary Node: [host, 0], PSN: [ primaryLeaseId = 1 sequenceNumber = 3]",
    ):
        assert line in text.splitlines()
    status = node.json("CLUSTERS CLUSTER local STATUS")["clusterStatus"]
    assert status["isHealthy"] is True
    assert status["electorInfo"]["electorState"] == "LEADER"
    assert status["nodeStatuses"] == {
        "nodes": [{"description": "[host, 0]", "status": "E_AVAILABLE", "primaryForPartitionIds": [0]}]
    }
    assert [info["queueUri"] for info in status["queuesInfo"]["storages"]] == [PRIORITY]


def test_how_queues_are_assigned(node: Administered) -> None:
    consumer = node.rig.connect()
    consumer.open(3, FANOUT, READ, "foo", 7)
    node.producer(PRIORITY)
    text = node.ask("CLUSTERS CLUSTER local QUEUEHELPER")
    assert "        fanout..: numAssignedQueues=1" in text
    assert "            subIds...........: (7, foo)" in text
    found = node.json("CLUSTERS CLUSTER local QUEUEHELPER")["clusterQueueHelper"]
    assert (found["numQueues"], found["numQueueKeys"], found["numPendingReopenQueueRequests"]) == (2, 2, 0)
    assert found["queues"][0]["subIds"] == [{"subId": 7, "appId": "foo"}]
    assert found["domains"] == [
        {"name": "fanout", "numAssignedQueues": 1, "loaded": True},
        {"name": "priority", "numAssignedQueues": 1, "loaded": True},
    ]
    again = node.restart().json("CLUSTERS CLUSTER local QUEUEHELPER")["clusterQueueHelper"]
    assert [queue["isCreated"] for queue in again["queues"]] == [False, False]


def test_the_storage_of_partitions() -> None:
    node = start_with(num_partitions=2)
    node.producer(PRIORITY, [100, 200])
    stores = node.json("CLUSTERS CLUSTER local STORAGE SUMMARY")["clusterStorageSummary"]["fileStores"]
    assert [store["partitionId"] for store in stores] == [0, 1]
    first = stores[0]["summary"]
    assert first["storageContent"]["storages"][0]["numBytes"] == 300
    assert first["activeFileSet"]["journalFile"] == {
        "positionBytes": node.rig.node.partitions[0].files.journal_end,
        "sizeBytes": 32 << 10,
        "outstandingBytes": 180,
    }
    text = node.ask("CLUSTERS CLUSTER local STORAGE PARTITION 1 SUMMARY")
    assert "Partition [1]:" in text
    assert "Partition [0]:" not in text
    assert node.ask("CLUSTERS CLUSTER local STORAGE PARTITION 2 SUMMARY", -2) == "Too high partitionId value: '2'"
    assert node.ask("CLUSTERS CLUSTER local STORAGE PARTITION -1 SUMMARY", -2) == "Too low partitionId value: '-1'"


def test_a_table_of_queues_is_aligned(node: Administered) -> None:
    node.producer(PRIORITY, [1000, 2000])
    key = node.rig.node.queues[PRIORITY].key.hex().upper()
    assert node.ask("CLUSTERS CLUSTER local STORAGE DOMAIN priority QUEUE_STATUS").splitlines() == [
        " QueueKey    Partition    NumMsgs    NumBytes                QueueUri",
        f"{key}       0             2     2.93 KB    bmq://priority/q",
    ]
    assert node.ask("CLUSTERS CLUSTER local STORAGE DOMAIN fanout QUEUE_STATUS", -2) == "Unknown domain 'fanout'"


def test_disabling_and_rolling_over_partitions(node: Administered) -> None:
    producer = node.producer(PRIORITY, [10])
    assert node.ask("CLUSTERS CLUSTER local STORAGE PARTITION 0 DISABLE") == "SUCCESS"
    assert "IsAvailable: false" in node.ask("CLUSTERS CLUSTER local STORAGE SUMMARY")
    assert producer.post(1, guid(5), b"refused") != 0
    assert node.ask("CLUSTERS CLUSTER local STORAGE PARTITION 0 ENABLE") == "SUCCESS"
    assert producer.post(1, guid(6), b"taken") == 0
    before = node.rig.node.partitions[0].files.timestamp
    assert node.json("CLUSTERS CLUSTER local STORAGE PARTITION ALL ROLLOVER") == {"success": {}}
    assert node.rig.node.partitions[0].files.timestamp > before
    assert node.ask("CLUSTERS CLUSTER local STORAGE PARTITION -2 ROLLOVER", -2) == "Too low partitionId value: '-2'"


def test_a_rollover_without_disk_fails(node: Administered) -> None:
    node.rig.directory.free = 0
    answer = node.ask("CLUSTERS CLUSTER local STORAGE PARTITION 0 ROLLOVER", -2)
    assert answer == "Rollover failed on partition 0: partition 0: no disk space for new files"


@pytest.mark.parametrize("path", ["STATE ELECTOR", "STORAGE REPLICATION"])
def test_quorums(node: Administered, path: str) -> None:
    prefix = f"CLUSTERS CLUSTER local {path}"
    assert node.ask(f"{prefix} GET quorum") == "Quorum = 1"
    assert node.ask(f"{prefix} LIST_TUNABLES").startswith("QUORUM..: 1\n    non-negative integer")
    assert node.ask(f"{prefix} SET QUORUM 0") == "Quorum set to 0 from 1"
    assert node.json(f"{prefix} SET_ALL quorum 1")["tunableConfirmation"] == {
        "name": "Quorum",
        "oldValue": {"theInteger": 0},
        "newValue": {"theInteger": 1},
    }
    for value in ("-1", "1.5", "true", "many"):
        assert "must be a non-negative integer" in node.ask(f"{prefix} SET QUORUM {value}", -2)
    assert node.ask(f"{prefix} SET size 1", -2) == "Unknown tunable name 'size'"
    assert node.ask(f"{prefix} GET size", -2).startswith("Unsupported tunable 'size'")


def test_a_replication_that_nothing_could_meet_is_refused(node: Administered) -> None:
    assert "cannot be 2" in node.ask("CLUSTERS CLUSTER local STORAGE REPLICATION SET QUORUM 2", -2)
    assert node.ask("CLUSTERS CLUSTER local STATE ELECTOR SET QUORUM 99") == "Quorum set to 99 from 1"


def test_a_domain(node: Administered) -> None:
    assert "ActiveQueues ..: 0" in node.ask("domains domain priority infos")
    node.producer(PRIORITY, [10, 20])
    node.producer("bmq://priority/empty")
    lines = node.ask("DOMAINS DOMAIN priority INFOS").splitlines()
    assert lines[:4] == ["Domain:", "-------", "    Name ............: priority", "    Config ..........:"]
    for line in (
        "            Messages: [current: 2, limit: 0]",
        "        ActiveQueues ..: 2",
        "           0. bmq://priority/empty",
        "           1. bmq://priority/q",
        "    Number of assigned queue-storages: 1",
    ):
        assert line in lines
    info = node.json("DOMAINS DOMAIN priority INFOS")["domainInfo"]
    assert json.loads(info["configJson"]) == {"name": "priority", "mode": {"priority": {}}}
    assert info["queueUris"] == ["bmq://priority/empty", PRIORITY]
    again = node.restart()
    assert "ActiveQueues ..: 0" in again.ask("DOMAINS DOMAIN priority INFOS")
    assert "Messages: [current: 2" in again.ask("DOMAINS DOMAIN priority INFOS")
    assert node.ask("DOMAINS DOMAIN nowhere INFOS", -2) == "Domain 'nowhere' doesn't exist"


def test_caches(node: Administered) -> None:
    assert node.ask("DOMAINS RESOLVER CACHE_CLEAR priority") == "SUCCESS"
    assert node.ask("DOMAINS RESOLVER CACHE_CLEAR priority", -2) == "Domain 'priority' doesn't exist"
    assert node.ask("CONFIGPROVIDER CACHE_CLEAR ALL") == "SUCCESS"


def test_the_internals_of_a_queue(node: Administered) -> None:
    node.producer(FANOUT, [10, 20, 30])
    consumer = node.rig.connect()
    consumer.read(1, FANOUT, "foo", 5, messages_max=2, priority=3)
    consumer.confirm(1, guid(0), sub_id=5)
    lines = node.ask("DOMAINS DOMAIN fanout QUEUE q INTERNALS").splitlines()
    key = node.rig.node.queues[FANOUT].key.hex().upper()
    for line in (
        "        Storage ...........: 3 messages, 60  B",
        f"        Id/Key ............: primary ~ {key}",
        "            2 handles:",
        "                1. client:42@10.0.0.1:5000",
        "                    UnconfirmedMessages ...: 2",
        "        FanoutQueueEngine (fanout):",
        "            foo: status=alive, StorageIter.atEnd=true",
        "            bar: status=registered, StorageIter.atEnd=false",
        "                    client:42@10.0.0.1:5000 [priority: 3, count: 1]",
    ):
        assert line in lines, line
    state = node.json("DOMAINS DOMAIN fanout QUEUE q INTERNALS")["queueInternals"]["state"]
    counts = {each["appId"]: each["numMessages"] for each in state["storage"]["virtualStorages"]}
    assert counts == {"foo": 2, "bar": 3, "baz": 3}
    (monitor,) = state["handles"][1]["subStreams"][0]["unconfirmedMonitors"]
    assert (monitor["state"], monitor["numMessages"], monitor["messagesCapacity"]) == ("STATE_FULL", 2, 2)


def test_the_states_of_a_consumers_limits(node: Administered) -> None:
    node.producer(PRIORITY, [10] * 20)
    consumer = node.rig.connect()

    def states() -> tuple[str, int, str, int]:
        state = node.json("DOMAINS DOMAIN priority QUEUE q INTERNALS")["queueInternals"]["state"]
        (monitor,) = state["handles"][1]["subStreams"][0]["unconfirmedMonitors"]
        assert monitor["state"] == monitor["messagesState"]
        return monitor["messagesState"], monitor["numMessages"], monitor["bytesState"], monitor["numBytes"]

    consumer.read(1, PRIORITY, messages_max=50, bytes_max=1000)
    assert states() == ("STATE_NORMAL", 20, "STATE_NORMAL", 200)
    consumer.configure(1, messages_max=25, bytes_max=1000)
    assert states() == ("STATE_HIGH_WATERMARK", 20, "STATE_NORMAL", 200)
    consumer.configure(1, messages_max=20, bytes_max=250)
    assert states() == ("STATE_FULL", 20, "STATE_HIGH_WATERMARK", 200)
    consumer.confirm(1, guid(0), guid(1), guid(2))
    assert states() == ("STATE_FULL", 17, "STATE_NORMAL", 170)
    consumer.confirm(1, guid(3), guid(4))
    assert states() == ("STATE_NORMAL", 15, "STATE_NORMAL", 150)


def test_an_app_that_the_domain_does_not_have_is_unauthorized(node: Administered) -> None:
    consumer = node.rig.connect()
    consumer.open(1, FANOUT, READ, "stranger", 1)
    assert "stranger: status=unauthorized" in node.ask("DOMAINS DOMAIN fanout QUEUE q INTERNALS")


def test_queues_that_are_not_in_use_have_no_internals(node: Administered) -> None:
    assert node.ask("DOMAINS DOMAIN priority QUEUE q INTERNALS", -2) == "Queue 'q' was not found on domain 'priority'"
    assert node.ask("DOMAINS DOMAIN nowhere QUEUE q INTERNALS", -2) == "Domain 'nowhere' doesn't exist"
    assert node.ask("DOMAINS DOMAIN priority QUEUE a?b INTERNALS", -2).startswith("Unable to build queue uri")


def test_a_queue_in_memory_is_marked(node: Administered) -> None:
    client = node.rig.connect()
    client.open(1, "bmq://memory/q", WRITE | ACK)
    client.post(1, guid(1), b"x")
    assert node.ask("CLUSTERS CLUSTER local STORAGE DOMAIN memory QUEUE_STATUS").endswith("q  (non-persistent)")


def test_expressions_and_what_clients_call_themselves_make_no_lines(node: Administered) -> None:
    consumer = node.rig.connect()
    consumer.session.client.description = "evil\n    State:\x1b[31m"
    consumer.open(1, FANOUT, READ, "foo", 1)
    subscription = SubscriptionInfo(
        s_id=9,
        expression=Expression(version=ExpressionVersion.VERSION_1, text='kind == "a" && size > 3'),
        consumers=(
            ConsumerInfo(
                max_unconfirmed_messages=7, max_unconfirmed_bytes=8, consumer_priority=2, consumer_priority_count=3
            ),
        ),
    )
    parameters = StreamParameters(app_id="foo", subscriptions=(subscription,))
    consumer.ask(ConfigureStream(q_id=1, stream_parameters=parameters))
    text = node.ask("DOMAINS DOMAIN fanout QUEUE q INTERNALS")
    assert "\x1b" not in text
    assert r"evil\n    State:\x1b[31m [priority: 2, count: 3, expression: kind == " in text
    (group,) = node.json("DOMAINS DOMAIN fanout QUEUE q INTERNALS")["queueInternals"]["queue"]["localQueue"][
        "queueEngine"
    ]["fanout"]["Routing"]["subscriptionGroups"]
    assert group["expression"] == 'kind == "a" && size > 3'
    assert group["priorityGroup"]["highestSubscriptions"][0]["consumer"] == {
        "maxUnconfirmedMessages": 7,
        "maxUnconfirmedBytes": 8,
        "consumerPriority": 2,
        "consumerPriorityCount": 3,
    }
    assert "\x1b" not in node.ask("STAT SHOW")


def test_the_log_shows_the_beginning_of_a_long_command(node: Administered, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broker.admin")
    node.ask("DOMAINS DOMAIN " + "x" * 100_000 + " INFOS", -2)
    (message,) = [message for message in caplog.messages if message.startswith("Received command")]
    assert len(message) < 1100
    assert message.endswith("xxx...' [source: test]")
