"""`bmqctl check` of nodes that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.systems.node_process import RocketProcess
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.cluster_processes import ClusterProcesses
from tests.waiting import eventually

PRIORITY = "bmq://bmq.test.persistent.priority/checked"
FANOUT = "bmq://bmq.test.persistent.fanout/checked"


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def found(*words: str) -> dict[str, Any]:
    code, out = run(*words, "--output", "json")
    answer: dict[str, Any] = json.loads(out)
    assert code == answer["code"]
    return answer | {each["name"]: each["value"] for each in answer["values"]}


def post(node: NodeProcess, queue: str, count: int) -> None:
    words = ["-q", queue, "-f", "write,ack", "--eventscount", str(count), "-i", "1", "-v", "error"]
    result = CliRunner().invoke(app, ["tool", "--mode", "auto", "-b", node.uri, *words])
    assert result.exit_code == 0, result.output


def test_the_backlog_of_a_queue_and_of_its_apps(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "store") as node:
        at = ("-b", node.uri)
        assert run("queue", PRIORITY, *at) == (3, f"QUEUE UNKNOWN - there is no queue {PRIORITY}\n")
        post(node, PRIORITY, 3)
        post(node, FANOUT, 2)
        answer = found("queue", PRIORITY, *at, "-w", "messages=3", "-c", "oldest=3600")
        assert (answer["status"], answer["messages"], answer["oldest"] < 3600) == ("OK", 3, True)
        code, line = run("queue", PRIORITY, *at, "-w", "messages=2", "-c", "messages=10")
        assert code == 1
        assert line.startswith(f"QUEUE WARNING - {PRIORITY}: 3 messages, the oldest ")
        assert "; messages 3 (range 2) | messages=3;2;10;0 oldest=" in line
        assert run("queue", PRIORITY, *at, "-c", "messages=2")[0] == 2
        assert found("queue", f"{FANOUT}?id=foo", *at)["messages"] == 2
        code, line = run("queue", f"{FANOUT}?id=nobody", *at)
        assert (code, line) == (3, "QUEUE UNKNOWN - Invalid 'LIST' command: invalid APPID\n")

        # A restart hides no backlog, though nobody has opened the queues since.
        node.restart()
        assert found("queue", PRIORITY, *at)["messages"] == 3
        answer = found("queue", PRIORITY, *at, "-w", "messages=3", "-c", "oldest=3600")
        assert (answer["status"], 0 < answer["oldest"] < 3600) == ("OK", True)
        assert found("queue", f"{FANOUT}?id=foo", *at, "-w", "messages=1")["status"] == "WARNING"


def test_a_cluster_that_loses_its_nodes(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        at = ("-b", cluster.nodes[1].uri)
        eventually(lambda: run("cluster", *at, "-c", "in_sync=3:")[0] == 0)
        answer = found("cluster", *at)
        assert (answer["quorum"], answer["without_primary"], answer["in_sync"], answer["problems"]) == (1, 0, 3, 0)
        queue = "bmq://bmq.test.persistent.priority.sc/checked"
        post(cluster.nodes[3], queue, 2)
        # Each node leads to the primary.
        assert [found("queue", queue, "-b", each.uri)["messages"] for each in cluster.nodes.values()] == [2, 2, 2]
        cluster.nodes[3].kill()
        eventually(lambda: run("cluster", *at, "-c", "in_sync=3:")[0] == 2)
        eventually(lambda: found("cluster", *at)["status"] == "WARNING")
        cluster.nodes[2].kill()
        eventually(lambda: found("cluster", *at)["quorum"] == 0)
        assert run("cluster", *at)[0] == 2


def test_a_group_that_falls_behind(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store") as node:
        at = ("--nameserver", node.nameserver)
        code, line = run("group", "billing", "--topic", "orders", *at)
        assert (code, line) == (3, f"GROUP UNKNOWN - nameserver {node.nameserver} knows no topic orders\n")
        result = CliRunner().invoke(app, ["bench", "--rocketmq", *at, "--topic", "orders", "--count", "40"])
        assert result.exit_code == 0, result.output
        answer = found("group", "bmqctl-bench", "--topic", "orders", *at, "-c", "lag=0")
        assert (answer["status"], answer["lag"], answer["oldest"]) == ("OK", 0, 0)
        answer = found("group", "billing", "--topic", "orders", *at, "-w", "lag=39", "-c", "oldest=3600")
        assert (answer["status"], answer["lag"], 0 < answer["oldest"] < 3600) == ("WARNING", 40, True)
        answer = found("cluster", *at)
        assert (answer["status"], answer["without_primary"], answer["in_sync"]) == ("OK", 0, 1)
        result = CliRunner().invoke(app, ["cluster", "status", *at, "--output", "jsonl"])
        (row,) = map(json.loads, result.stdout.splitlines())
        assert (row["name"], row["role"], row["status"]) == ("broker-a", "master", "AVAILABLE")
        result = CliRunner().invoke(app, ["cluster", "explain", *at, "--output", "json"])
        assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_broker_that_does_not_answer_is_critical() -> None:
    at = f"127.0.0.1:{free_port()}"
    blazingmq: tuple[tuple[str, ...], ...] = (
        ("queue", PRIORITY, "-b", f"tcp://{at}"),
        ("cluster", "-b", f"tcp://{at}"),
    )
    rocketmq: tuple[tuple[str, ...], ...] = (
        ("group", "g", "--topic", "t", "--nameserver", at),
        ("cluster", "--nameserver", at),
    )
    for words in blazingmq:
        code, line = run(*words)
        assert code == 2
        assert f"CRITICAL - no broker at {at}: Connection refused" in line
    for words in rocketmq:
        code, line = run(*words)
        assert code == 2
        assert " CRITICAL - " in line
        assert at in line


@pytest.mark.parametrize(
    "words",
    [
        ("queue",),
        ("queue", "orders"),
        ("queue", PRIORITY, "-b", "nowhere"),
        ("queue", PRIORITY, "-w", "message=1"),
        ("cluster", "-c", "in_sync=x"),
        ("cluster", "--nameserver", "nowhere"),
        ("group", "g"),
        ("disk", "/nowhere"),
        ("disk", "/", "--context", "x"),
    ],
)
def test_unknown_check_gives_exit_code_3(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["check", *words])
    assert result.exit_code == 3
    assert result.output


def test_a_disk(tmp_path: Path) -> None:
    answer = found("disk", str(tmp_path), "-w", "free=0:")
    assert (answer["status"], 0 <= answer["free"] <= 100, answer["free_bytes"] >= 0) == ("OK", True, True)
    code, line = run("disk", str(tmp_path), "-c", "free=101:")
    assert code == 2
    assert line.startswith(f"DISK CRITICAL - {tmp_path}: ")
    code, line = run("disk", str(tmp_path), "-w", "free=0:", "--output", "csv")
    assert (code, line.splitlines()[0]) == (0, "name,value,unit,warning,critical,status")
