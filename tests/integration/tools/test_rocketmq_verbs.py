"""`bmqctl topic`, `group` and `client` with a node of RocketMQ and its clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.client.rocketmq import connect
from bmqctl.systems.node_process import RocketProcess
from formats.rocketmq.remoting.versions import VERSION_NAME


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("verbs") / "store") as running:
        yield running


def run(node: RocketProcess, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words, "--nameserver", node.nameserver])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def rows(node: RocketProcess, *words: str) -> Any:
    code, out = run(node, *words, "--output", "json")
    assert code == 0, out
    return json.loads(out)


def test_a_topic_from_its_creation_to_its_deletion(node: RocketProcess) -> None:
    assert rows(node, "topic", "create", "orders", "--queues", "3", "--dry-run")[0]["action"] == "create"
    assert "no such topic; `bmqctl topic list` lists them" in run(node, "topic", "show", "orders")[1]
    assert run(node, "topic", "create", "orders", "--queues", "3", "--type", "fifo", "--set", "perm=4")[0] == 0
    (found,) = rows(node, "topic", "show", "orders").values()
    assert [found[name] for name in ("readQueueNums", "writeQueueNums", "perm")] == [3, 3, 4]
    assert found["attributes"] == {"message.type": "FIFO"}
    code, out = run(node, "topic", "create", "orders")
    assert (code, "broker broker-a has it; `bmqctl topic alter` changes it" in out) == (2, True)

    changed = rows(node, "topic", "alter", "orders", "--set", "perm=6", "--set", "attributes.cleanup.policy=DELETE")
    assert {each["field"]: each["wanted"] for each in changed} == {"perm": 6, "attributes.cleanup.policy": "DELETE"}
    (found,) = rows(node, "topic", "show", "orders").values()
    assert (found["readQueueNums"], found["perm"]) == (3, 6)
    assert found["attributes"] == {"message.type": "FIFO", "cleanup.policy": "DELETE"}

    assert "Standard input is not a terminal" in run(node, "topic", "delete", "orders")[1]
    assert [each["name"] for each in rows(node, "topic", "list")] == ["orders"]
    assert run(node, "topic", "delete", "orders", "--yes")[0] == 0
    assert rows(node, "topic", "list") == []
    assert run(node, "topic", "delete", "orders", "--yes")[0] == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("topic", "create", "t", "--set", "queues"), "--set queues: expected FIELD=VALUE"),
        (("topic", "create", "t", "--set", "queues=3"), "topics.t.queues: there is no such field; there are "),
        (("topic", "create", "t", "--set", "perm=rw"), "topics.t"),
        (("topic", "create", "t", "--set", "perm.a=6"), "topics.t"),
        (("topic", "create", "t", "--set", "perm=6", "--set", "perm.a=6"), "perm is given a value of its own, too"),
        (("topic", "create", "t", "--set", "attributes.odd=1"), "unsupported key: odd"),
        (("topic", "create", "a b"), "illegal characters"),
        (("group", "alter", "no-group", "--retries", "1"), "no such group"),
        (("group", "seek", "g", "--topic", "no-topic", "--to", "end"), "knows no topic no-topic"),
        (("group", "seek", "g", "--topic", "t", "--to", "soon"), "--to soon: expected begin, end, a time"),
        (("group", "seek", "g", "--topic", "t", "--to", "end", "--broker-name", "broker-a"), "on all brokers"),
        (("client", "list", "--broker-name", "b"), "--broker-name b: there are broker-a"),
    ],
)
def test_what_cannot_be_is_refused(node: RocketProcess, words: tuple[str, ...], text: str) -> None:
    code, out = run(node, *words)
    assert (code, f"bmqctl {words[0]} {words[1]}: " in out) == (2, True), out
    assert text in out


def test_a_group_and_its_members(node: RocketProcess) -> None:
    assert run(node, "topic", "create", "bills", "--queues", "1")[0] == 0
    assert run(node, "group", "create", "billing", "--retries", "3")[0] == 0
    assert run(node, "group", "alter", "billing", "--ordered")[0] == 0
    (found,) = rows(node, "group", "show", "billing").values()
    assert (found["retryMaxTimes"], found["consumeMessageOrderly"]) == (3, True)
    assert rows(node, "group", "members", "billing") == []
    trio.run(_consume_and_seek, node)
    assert run(node, "group", "delete", "billing", "--yes")[0] == 0
    assert run(node, "group", "show", "billing")[0] == 2


async def _consume_and_seek(node: RocketProcess) -> None:
    async with connect(f"rocketmq://{node.nameserver}") as session:
        producer = await session.producer("bills")
        await producer.post_all(b"%d" % number for number in range(10))
        await producer.flush()
        async with await session.consume("bills", "billing", from_start=True) as consumer:
            for _ in range(10):
                (await anext(consumer)).confirm()
            (member,) = await trio.to_thread.run_sync(rows, node, "group", "members", "billing")
            assert (member["version"], member["subscriptions"]) == (VERSION_NAME, "%RETRY%billing *, bills *")
            clients = await trio.to_thread.run_sync(rows, node, "client", "list")
            assert {(each["role"], each["group"]) for each in clients} >= {("consumer", "billing")}
            assert member["client"] in {each["client"] for each in clients}

    async def seek(*words: str) -> list[tuple[int, int, int]]:
        found = await trio.to_thread.run_sync(rows, node, "group", "seek", "billing", "--topic", "bills", *words)
        return [(each["before"], each["after"], each["again"]) for each in found]

    ends = [each[0] for each in await seek("--to", "end", "--dry-run")]
    assert ends == [10]
    assert await seek("--to", "-1", "--yes") == [(end, end - 1, 1) for end in ends]
    assert await seek("--to", "+50", "--dry-run") == [(end - 1, end, 0) for end in ends]
    assert await seek("--to", "1", "--yes") == [(end - 1, 1, end - 2) for end in ends]
    assert await seek("--to", "2020-01-01T00:00:00", "--yes") == [(1, 0, 1) for _ in ends]
    assert await seek("--to", "end", "--yes") == [(0, end, 0) for end in ends]
    assert await seek("--to", "begin", "--dry-run") == [(end, 0, end) for end in ends]
