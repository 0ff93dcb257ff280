"""`bmqctl topic`, `group`, `client`, `user`, `acl` and `config set` with a node of RocketMQ and its clients."""

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

    changed = rows(node, "topic", "alter", "orders", "--set", "perm=6", "--set", "attributes.reserve.time=-1")
    assert {each["field"]: each["wanted"] for each in changed} == {"perm": 6, "attributes.reserve.time": "-1"}
    (found,) = rows(node, "topic", "show", "orders").values()
    assert (found["readQueueNums"], found["perm"]) == (3, 6)
    assert found["attributes"] == {"message.type": "FIFO", "reserve.time": "-1"}

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
        (("user", "create", "ann"), "give the password in BMQCTL_USER_PASSWORD"),
        (("user", "alter", "no-user", "--disable"), "no such user; `bmqctl user list` lists them"),
        (("acl", "create", "no-user", "Topic:orders", "--act", "Pub"), "User:no-user is not exist"),
        (("acl", "delete", "ann", "Topic:orders", "--yes"), "no such right; `bmqctl acl list` lists them"),
        (("config", "set", "maxMessageSiz", "1"), "no such setting"),
        (("config", "set", "listenPort", "1"), "listenPort cannot be changed while the node runs"),
    ],
)
def test_impossible_options_are_refused(node: RocketProcess, words: tuple[str, ...], text: str) -> None:
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


def test_a_user_and_its_rights(node: RocketProcess) -> None:
    made = rows(node, "user", "create", "ann", "--password", "secret")
    assert [each["wanted"] for each in made] == [{"password": "***"}]
    code, out = run(node, "user", "create", "ann", "--password", "secret")
    assert (code, "broker broker-a has it; `bmqctl user alter` changes it" in out) == (2, True)
    changed = rows(node, "user", "alter", "ann", "--disable", "--password", "other")
    assert {each["field"]: each["wanted"] for each in changed} == {"password": "***", "userStatus": "disable"}
    assert rows(node, "user", "list") == [
        {"name": "ann", "broker": "broker-a", "userType": "Normal", "userStatus": "disable"}
    ]

    assert run(node, "acl", "create", "ann", "Topic:orders", "--act", "pub", "--from", "10.0.0.0/8")[0] == 0
    assert run(node, "acl", "create", "ann", "Topic:orders", "--act", "all", "--deny", "--default")[0] == 0
    assert run(node, "acl", "alter", "ann", "Topic:orders", "--act", "Pub", "--act", "Sub")[0] == 0
    rights = {
        each["name"]: (each["decision"], each["actions"], each["sourceIps"]) for each in rows(node, "acl", "list")
    }
    assert rights == {
        "User:ann Topic:orders Custom": ("Allow", ["Pub", "Sub"], ["10.0.0.0/8"]),
        "User:ann Topic:orders Default": ("Deny", ["All"], []),
    }
    assert run(node, "acl", "delete", "ann", "Topic:orders", "--yes")[0] == 0
    assert [each["name"] for each in rows(node, "acl", "list")] == ["User:ann Topic:orders Default"]
    assert run(node, "user", "delete", "ann", "--yes")[0] == 0
    assert rows(node, "user", "list") == rows(node, "acl", "list") == []


def test_a_setting_counts_at_once(node: RocketProcess) -> None:
    (change,) = rows(node, "config", "set", "maxMessageSize", "1000000")
    assert (change["name"], change["wanted"]) == ("maxMessageSize", "1000000")
    assert run(node, "config", "set", "maxMessageSize", "1000000")[1] == "Nothing differs.\n"
    assert run(node, "config", "set", "maxMessageSize", "much")[0] == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("user", "list"), "appConfig.authentication in the bmqbrkrcfg.json"),
        (("acl", "list"), "appConfig.authorization in the bmqbrkrcfg.json"),
        (("config", "set", "a", "1"), "`bmqctl domain alter` changes a domain"),
        (("topic", "show", "a"), "BlazingMQ has no topics"),
        (("client", "list"), "`bmqctl admin STAT SHOW`"),
    ],
)
def test_a_broker_of_blazingmq_is_refused_with_the_place_to_look(words: tuple[str, ...], text: str) -> None:
    result = CliRunner().invoke(app, [*words, "--broker", "tcp://127.0.0.1:1"])
    assert (result.exit_code, text in result.output) == (2, True), result.output
