"""STAT commands: what clients did, counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.statistics import SNAPSHOT_MS, SNAPSHOTS_KEPT
from tests.broker.bmq.admin.conftest import Administered, start_with
from tests.broker.bmq.rig import ACK, WRITE, guid

FANOUT = "bmq://fanout/q"


@pytest.fixture
def node() -> Administered:
    return start_with(DomainConfig("fanout", Mode.FANOUT, ("bar", "baz", "foo"), queue_messages_max=1000))


def stats(node: Administered, uri: str = FANOUT) -> Any:
    found = json.loads(node.json("STAT SHOW")["stats"])
    assert set(found) == {"_timestamp", "domainQueues"}
    return found["domainQueues"]["domains"]["fanout"][uri]


def some(values: dict[str, int], *names: str) -> list[int]:
    return [values[f"queue_{name}"] for name in names]


def test_posts_pushes_confirms_and_a_purge(node: Administered) -> None:
    producer = node.producer(FANOUT, [3] * 32)
    producer.close(1, FANOUT, WRITE | ACK)
    found = stats(node)
    assert some(found["values"], "put_msgs", "put_bytes_abs", "ack_msgs_abs", "msgs_current", "bytes_current") == [
        *(32, 96, 32, 32, 96)
    ]
    assert some(found["values"], "role", "cfg_msgs", "msgs_utilization_max", "producers_count") == [1, 1000, 3, 0]
    assert some(found["appIds"]["foo"]["values"], "msgs_current", "content_bytes", "put_msgs", "role") == [32, 96, 0, 0]

    for app, count in (("foo", 32), ("bar", 22), ("baz", 11)):
        consumer = node.rig.connect()
        consumer.read(1, FANOUT, app, 1)
        node.rig.wait(1000)
        consumer.confirm(1, *map(guid, range(count)), sub_id=1)
    found = stats(node)
    values = found["values"]
    assert some(values, "push_msgs", "push_bytes_abs", "confirm_msgs_abs", "consumers_count") == [96, 288, 65, 3]
    assert some(values, "msgs_current", "content_msgs", "history_abs") == [21, 32, 11]
    assert some(values, "confirm_time_avg", "confirm_time_max") == [1_000_000_000, 1_000_000_000]
    assert some(values, "queue_time_avg", "queue_time_max") == [1_000_000_000, 2_000_000_000]
    assert {app: part["values"]["queue_msgs_current"] for app, part in found["appIds"].items()} == {
        "foo": 0,
        "bar": 10,
        "baz": 21,
    }
    assert some(found["appIds"]["bar"]["values"], "queue_time_max", "push_msgs") == [1_000_000_000, 0]

    assert "Purged 21 message(s)" in node.ask("DOMAINS DOMAIN fanout QUEUE q PURGE baz")
    found = stats(node)
    assert some(found["values"], "msgs_current", "bytes_current", "history_abs") == [10, 30, 22]
    assert some(found["appIds"]["baz"]["values"], "msgs_current", "content_msgs") == [0, 32]


def test_old_values_are_in_the_sums_only(node: Administered) -> None:
    node.producer(FANOUT, [3] * 5)
    node.rig.wait((SNAPSHOTS_KEPT + 2) * SNAPSHOT_MS)
    node.producer(FANOUT).post(1, guid(100), b"xyz")
    values = stats(node)["values"]
    assert some(values, "put_msgs", "put_msgs_abs", "content_msgs") == [1, 6, 6]


def test_refusals_expiries_and_rejects_are_counted() -> None:
    node = start_with(
        DomainConfig("fanout", Mode.FANOUT, ("foo",), queue_messages_max=1, message_ttl_s=5, delivery_attempts_max=2)
    )
    producer = node.producer(FANOUT, [1, 1, 1])
    assert some(stats(node)["values"], "nack_msgs", "ack_msgs", "put_msgs") == [1, 2, 2]
    consumer = node.rig.connect()
    consumer.read(1, FANOUT, "foo", 1)
    node.rig.node.disconnect(consumer.session, "it crashes")
    assert some(stats(node)["values"], "reject_msgs") == [2]
    node.rig.wait(7000)
    assert some(stats(node)["values"], "gc_msgs", "msgs_current") == [2, 0]
    assert producer.session.bytes_in > 0


def test_broadcasts_are_counted() -> None:
    node = start_with(DomainConfig("fanout", Mode.BROADCAST, persistent=False))
    consumer = node.rig.connect()
    consumer.read(1, FANOUT)
    node.producer(FANOUT, [7])
    assert some(stats(node)["values"], "put_bytes", "push_bytes", "msgs_current") == [7, 7, 0]
    assert "appIds" not in stats(node)


def test_apps_are_shown_unless_the_domain_says_no(node: Administered) -> None:
    node.configure("fanout", shown={"mode": {"fanout": {"publishAppIdMetrics": False}}})
    node.producer(FANOUT)
    assert "appIds" not in stats(node)


def test_too_often(node: Administered) -> None:
    for _ in range(4):
        node.json("STAT SHOW")
    told = "Cannot save the recent snapshot, trying to make snapshots too often"
    assert node.json("STAT SHOW", -2) == {"error": {"message": told}}
    node.rig.now.ms += 250
    node.json("STAT SHOW")
    node.json("STAT SHOW", -2)
    node.ask("STAT SHOW")


def test_tables(node: Administered) -> None:
    node.producer(FANOUT, [600] * 10)
    lines = node.ask("STAT SHOW").splitlines()
    assert ":::::::::: :::::::::: DOMAINQUEUES >>" in lines
    start = lines.index(":::::::::: :::::::::: DOMAINQUEUES >>")
    groups, titles, rule, domain, queue, *apps = lines[start + 1 : start + 9]
    assert {len(line) for line in (groups, titles, rule, domain, queue, *apps[:3])} == {len(rule)}
    assert [cell.strip() for cell in groups.split("|")][1:4] == ["Info", "Content", "Put"]
    assert queue.startswith("  bmq://fanout/q")
    assert "5.86 KB" in queue
    assert [app.split()[0] for app in apps[:3]] == ["bar", "baz", "foo"]
    assert ":::::::::: :::::::::: TCP CHANNELS >>" in lines
    assert "client:42@10.0.0.1:5000" in lines[-1]


def test_parameters(node: Administered) -> None:
    assert node.ask("STAT LIST_TUNABLES") == ""
    assert node.json("STAT LIST_TUNABLES") == {"tunables": {}}
    assert node.ask("STAT GET x.PUBLISHINTERVAL", -2) == "StatConsumer 'x' does not exist"
    assert node.ask("STAT SET x.PUBLISHINTERVAL 30", -2) == "No configuration found for StatConsumer 'x'"
    for name in (".PUBLISHINTERVAL", "interval"):
        assert node.ask(f"STAT GET {name}", -2).startswith(f"Unsupported tunable '{name}'")
        assert node.ask(f"STAT SET {name} 1", -2).startswith(f"Unsupported tunable '{name}'")
