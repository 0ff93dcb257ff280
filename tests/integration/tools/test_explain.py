"""`bmqctl queue explain` of queues and groups of nodes that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.client import Subscription, connect
from bmqctl.systems.node_process import RocketProcess
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.official import Client, queue_name
from tests.waiting import eventually


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["queue", "explain", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def causes(*words: str) -> list[tuple[str, str, int]]:
    code, out = run(*words, "--output", "json")
    found: list[dict[str, Any]] = json.loads(out)
    assert code == (1 if found else 0)
    return [(each["cause"], each["app"], each["messages"]) for each in found]


def test_consumers_that_are_missing_full_or_slow(node: NodeProcess) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    at = ("-b", node.uri)
    assert run(uri, *at) == (2, f"bmqctl queue explain: there is no queue {uri}\n")
    with Client(node.uri) as client:
        client.open(uri, write=True)
        assert run(uri, *at) == (0, f"{uri}: nothing waits.\n")
        client.post_all(uri, [b"x"] * 8)
        assert causes(uri, *at) == [("no consumer", name, 8) for name in ("foo", "bar", "baz")]
        client.open(f"{uri}?id=foo", read=True, max_unconfirmed_messages=3)
        client.open(f"{uri}?id=bar", read=True, max_unconfirmed_messages=9)
        client.wait_for_messages(11)
        assert causes(uri, *at) == [("flow control", "foo", 5), ("unconfirmed", "bar", 8), ("no consumer", "baz", 8)]
        assert causes(f"{uri}?id=bar", *at) == [("unconfirmed", "bar", 8)]
        code, out = run(f"{uri}?id=bar", *at)
        assert code == 1
        assert out.startswith(
            "unconfirmed: consumers of app bar hold 8 messages that they have not confirmed, most of them "
        )
        assert run(f"{uri}?id=nobody", *at) == (
            2,
            f"bmqctl queue explain: {uri} has no app nobody, but bar, baz, foo\n",
        )


def test_messages_that_no_expression_matches(node: NodeProcess) -> None:
    uri = queue_name()

    async def explained() -> list[tuple[str, str, int]]:
        async with connect(node.uri) as session:
            queue = await session.open(uri, read=True, write=True, subscriptions=[Subscription("size > 3")])
            await queue.post(b"small", properties={"size": 1})
            return await trio.to_thread.run_sync(causes, uri, "-b", node.uri)

    assert trio.run(explained) == [("put aside", "", 1)]


def test_a_queue_that_nobody_has_opened_since_the_start(tmp_path: Path) -> None:
    uri = queue_name()
    with NodeProcess(tmp_path / "store") as node:
        with Client(node.uri) as client:
            client.open(uri, write=True)
            client.post_all(uri, [b"x"] * 2)
        node.restart()
        assert causes(uri, "-b", node.uri) == [("no consumer", "", 2)]


def test_messages_without_replicas(tmp_path: Path) -> None:
    uri = queue_name("bmq.test.persistent.priority.sc")
    with ClusterProcesses(tmp_path) as cluster:
        cluster.wait_available()
        leader = cluster.leader()
        at = cluster.nodes[leader].uri
        with Client(at, barrier_domain="bmq.test.persistent.priority") as client:
            client.open(uri, write=True)
            for number in cluster.nodes:
                if number != leader:
                    cluster.kill(number)
            client.post(uri, b"x")
            eventually(lambda: causes(uri, "-b", at) == [("no quorum", "", 1), ("no consumer", "", 1)])


def test_a_group(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store") as node:
        topic = f"rocketmq://{node.nameserver}/orders"
        assert run(topic) == (2, f"bmqctl queue explain: {topic}: name the group, as in {topic}?group=GROUP\n")
        code, out = run(f"{topic}?group=billing")
        assert (code, out) == (2, f"bmqctl queue explain: nameserver {node.nameserver} knows no topic orders\n")
        words = ("--nameserver", node.nameserver, "--topic", "orders", "--count", "40")
        assert CliRunner().invoke(app, ["bench", "--rocketmq", *words]).exit_code == 0
        assert causes(f"{topic}?group=bmqctl-bench") == []
        assert causes(f"{topic}?group=billing") == [("no consumer", "billing", 40)]


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("orders", "expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        ("bmq://my.domain/orders", "no broker at"),
        ("rocketmq://127.0.0.1:{port}/orders?group=g", "Connection refused"),
    ],
)
def test_broker_that_cannot_be_asked_gives_one_line(uri: str, reason: str) -> None:
    port = free_port()
    code, out = run(uri.format(port=port), "-b", f"tcp://127.0.0.1:{port}")
    assert (code, out.count("\n")) == (2, 1)
    assert reason in out
