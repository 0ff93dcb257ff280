"""`bmqctl top`, and the lists of queues, topics and groups, of nodes that run."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import DataTable
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.client.admin import AdminLost
from bmqctl.systems.blazingmq.status.asking import Asking, Refused
from bmqctl.systems.node_process import RocketProcess
from bmqctl.systems.watching.blazingmq import purge, take_sample
from bmqctl.systems.watching.model import Selection
from bmqctl.systems.watching.screen import Top
from bmqctl.systems.watching.watcher import Watcher
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.official import Client, queue_name
from tests.waiting import eventually

ASKING = Asking(20.0, None, None)


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["top", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def once(*words: str) -> dict[tuple[str, str], dict[str, Any]]:
    code, out, err = run("--interval", "0.5", "--timeout", "20", "--output", "json", *words)
    assert (code, err) == (0, "")
    return {(row["name"], row["part"]): row for row in json.loads(out)}


def listed(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*words, "--timeout", "20", "--output", "json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_queues_and_apps_of_a_node(node: NodeProcess) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    with Client(node.uri) as client:
        client.open(uri, write=True)
        client.post_all(uri, [b"x"] * 8)
        client.open(f"{uri}?id=foo", read=True)
        client.wait_for_messages(8)
        row = once("-b", node.uri)[uri, ""]
        assert (row["backlog"], row["consumers"], row["rate_in"], row["rate_out"]) == (8, 1, 0.0, 0.0)
        assert row["oldest_s"] > 0
        apps = once("-b", node.uri, "--within", uri)
        assert {part: row["backlog"] for (_, part), row in apps.items()} == {"foo": 8, "bar": 8, "baz": 8}
        # The same message is the oldest of each: rows that are sorted by age do not change places.
        assert len({row["oldest_s"] for row in apps.values()}) == 1
        before = take_sample("127.0.0.1", node.port, ASKING)
        client.post_all(uri, [b"x"] * 4)
        after = take_sample("127.0.0.1", node.port, ASKING)
        puts = [each.put for sample in (before, after) for each in sample.counted if each[:2] == (uri, "")]
        assert puts == [8, 12]
        assert [each.address for each in after.nodes] == [f"127.0.0.1:{node.port}"]
        code, out, _ = run("--once", "--interval", "0.5", "--filter", uri, "-b", node.uri)
        assert (code, out.splitlines()[0].split()[:4]) == (0, ["NAME", "NODE", "IN/S", "OUT/S"])
        assert uri in out
        (queue,) = listed("queue", "list", "-b", node.uri, "--filter", uri)
        assert (queue.pop("oldest_s") > 0, queue) == (
            True,
            {"name": uri, "node": "node 0", "backlog": 12, "consumers": 1},
        )
        parts = listed("queue", "list", "--apps", "-b", node.uri, "--filter", uri)
        assert [(each["name"], each["part"], each["backlog"]) for each in parts] == [
            (uri, app, 12) for app in ("bar", "baz", "foo")
        ]


def test_a_restart_hides_no_backlog(tmp_path: Path) -> None:
    uri = queue_name("bmq.test.persistent.priority")
    with NodeProcess(tmp_path / "store") as node:
        with Client(node.uri) as client:
            client.open(uri, write=True)
            client.post_all(uri, [b"x"] * 3)
        node.restart()
        (queue,) = listed("queue", "list", "-b", node.uri)
        assert (queue["name"], queue["backlog"], queue["oldest_s"] > 0, queue["consumers"]) == (uri, 3, True, 0)
        result = CliRunner().invoke(app, ["browse", uri, "-b", node.uri, "--json"])
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 3), result.output


def test_a_purge_by_the_screen(node: NodeProcess) -> None:
    uri = queue_name()
    place = ("127.0.0.1", node.port)
    watcher = Watcher(
        lambda: take_sample(*place, ASKING), (AdminLost, Refused), lambda name, app: purge(*place, ASKING, name, app)
    )
    with Client(node.uri) as client:
        client.open(uri, write=True)
        client.post_all(uri, [b"x"] * 3)
        top = Top(watcher, 3600, node.uri, Selection(text=uri))

        async def play() -> None:
            async with top.run_test() as pilot:
                await top.workers.wait_for_complete()
                await pilot.pause()
                assert str(top.query_one(DataTable).get_row_at(0)[0]) == uri
                await pilot.press("p", "y")
                await top.workers.wait_for_complete()
                await pilot.pause()
                assert top.message == f"3 messages removed from {uri}"

        asyncio.run(play())
        assert once("-b", node.uri)[uri, ""]["backlog"] == 0


def test_a_cluster_with_a_node_that_is_down(tmp_path: Path) -> None:
    uri = queue_name("bmq.test.persistent.priority")
    with ClusterProcesses(tmp_path) as cluster:
        cluster.wait_available()
        leader = cluster.leader()
        at = cluster.nodes[leader].uri
        with Client(at) as client:
            client.open(uri, write=True)
            client.post_all(uri, [b"x"] * 3)
            # Each node leads to the same rows.
            for node in cluster.nodes.values():
                row = once("-b", node.uri)[uri, ""]
                assert row["backlog"] == 3
            eventually(lambda: once("-b", at)[uri, ""]["lag"] == 0)
            gone = next(number for number in cluster.nodes if number != leader)
            cluster.kill(gone)
            code, _, err = run("--once", "--interval", "0.5", "-b", at)
            assert code == 1
            assert err.startswith(f"bmqctl top: node {gone}: no broker at ")


def test_topics_and_groups(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store") as node:
        at = ("--nameserver", node.nameserver)
        words = ("--topic", "orders", "--count", "40")
        assert CliRunner().invoke(app, ["bench", "--rocketmq", *at, *words]).exit_code == 0
        rows = once(*at)
        assert [name for name, _ in rows] == ["orders"]
        row = rows["orders", ""]
        assert (row["node"], row["backlog"], row["rate_in"], row["lag"]) == ("broker-a", 0, 0.0, None)
        groups = once(*at, "--within", "orders")
        assert groups["orders", "bmqctl-bench"]["backlog"] == 0
        assert [each["name"] for each in listed("topic", "list", *at)] == ["orders"]
        assert [(each["part"], each["name"]) for each in listed("group", "list", *at)] == [("bmqctl-bench", "orders")]
        assert listed("group", "list", *at, "--filter", "none") == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--once", "-b", "tcp://127.0.0.1:{port}"), "no broker at 127.0.0.1:{port}"),
        (("--once", "--nameserver", "127.0.0.1:{port}"), "127.0.0.1:{port}"),
        (("--once", "-b", "nowhere"), "--broker nowhere: expected tcp://HOST:PORT"),
        (("--once", "--sort", "size"), "--sort size: expected one of name, part, node"),
        (("-b", "tcp://127.0.0.1:{port}"), "the output is no terminal; use --once"),
    ],
)
def test_refusals(words: tuple[str, ...], reason: str) -> None:
    port = free_port()
    code, out, err = run(*(word.format(port=port) for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason.format(port=port) in err


def test_the_screen_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bmqctl.systems.watching.screen", None)
    monkeypatch.setattr("bmqctl.cli.watch.top._is_terminal", lambda: True)
    code, _, err = run()
    assert code == 2
    assert err == (
        "bmqctl top: the screen needs textual, of the extra `top`: pip install '.[top]' in a checkout of bmqctl; "
        "or use --once\n"
    )
