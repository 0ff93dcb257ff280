"""`bmqctl post` against real nodes of both systems."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.client import Property, PropertyType, connect
from bmqctl.client.rocketmq import Message as RocketMessage
from bmqctl.client.rocketmq import connect as connect_rocketmq
from bmqctl.testing import NodeProcess, RocketProcess
from tests.rigs.config_files import spoil, write_config
from tests.rigs.messages_at_hand import run, started
from tests.waiting import WAIT_S, eventually_in_trio

PRIORITY = "bmq://bmq.test.persistent.priority"
# A queue of the domain `shop.orders` is full when it holds more than its limit of 10.
ORDERS_MAX = 11


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as started:
        yield started


@pytest.fixture(scope="module")
def guarded_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    config = write_config(folder / "etc")
    users = {"name": "BasicAuthenticator", "settings": [{"key": "shop", "value": {"stringVal": "x"}}]}
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value={"authenticators": [users]})
    with NodeProcess(folder / "store", config_dir=config) as running:
        yield running


async def taken(node: NodeProcess, uri: str, count: int) -> list[tuple[bytes, list[Property]]]:
    """Confirm `count` messages of a queue, and return them."""
    found: list[tuple[bytes, list[Property]]] = []
    async with connect(node.uri) as session:
        queue = await session.open(uri, read=True)
        with trio.fail_after(WAIT_S):
            while len(found) < count:
                async with await anext(queue) as message:
                    found.append((message.payload, message.typed_properties))
    return found


async def consumed(rocket: RocketProcess, topic: str, count: int) -> list[RocketMessage]:
    found: list[RocketMessage] = []
    async with connect_rocketmq(f"rocketmq://{rocket.nameserver}") as session:
        consumer = await session.consume(topic, f"{topic}-group", from_start=True)
        with trio.fail_after(WAIT_S):
            while len(found) < count:
                async with await anext(consumer) as message:
                    found.append(message)
    return found


async def in_thread(*words: object, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
    return await trio.to_thread.run_sync(lambda: run(*words, stdin=stdin, code=code))


@pytest.mark.trio
async def test_a_queue_gets_what_is_posted(node: NodeProcess, tmp_path: Path) -> None:
    queue = f"{PRIORITY}/post"
    to = (queue, "-b", node.uri)
    (tmp_path / "payload").write_bytes(b"\0\xff\n")
    output, _ = await in_thread("post", *to, "order 1", "-p", "customer=Ada", "-p", "amount:=12")
    assert output.startswith("1 of 1 messages acknowledged, 7 bytes of payload")
    output, _ = await in_thread("post", *to, "-", stdin=b"2")
    assert output.startswith("1 of 1 messages acknowledged, 1 byte of payload")
    await in_thread("post", *to, "--file", "-", stdin=b"order 2\n")
    await in_thread("post", *to, "--file", tmp_path / "payload", "--compress")
    await in_thread("post", *to, "--lines", "--count", "2", stdin=b"order 4\norder 5\norder 6\n")
    row = {"payload": "order 7", "properties": {"id": {"type": "INT32", "value": 7}}}
    output, _ = await in_thread("post", *to, "--jsonl", "--json", "--rate", "1000", stdin=json.dumps(row).encode())
    account = json.loads(output)
    assert account.pop("elapsed_s") > 0
    assert account == {
        "posted": 1,
        "acknowledged": 1,
        "refused": 0,
        "unanswered": 0,
        "payload_bytes": 7,
        "failures": [],
        "ended_by": None,
        "interrupted": False,
    }
    assert await taken(node, queue, 7) == [
        (b"order 1", [Property("amount", PropertyType.INT64, 12), Property("customer", PropertyType.STRING, "Ada")]),
        (b"2", []),
        (b"order 2\n", []),
        (b"\0\xff\n", []),
        (b"order 4", []),
        (b"order 5", []),
        (b"order 7", [Property("id", PropertyType.INT32, 7)]),
    ]


@pytest.mark.trio
async def test_a_topic_gets_what_is_posted(rocket: RocketProcess) -> None:
    to = f"rocketmq://{rocket.nameserver}/post"
    await in_thread("post", to, "order 1", "--tag", "paid", "--key", "o-1", "--key", "o-2", "-p", "amount:=12")
    (message,) = await consumed(rocket, "post", 1)
    assert (message.payload, message.tag, message.keys) == (b"order 1", "paid", ["o-1", "o-2"])
    assert message.properties == {"amount": "12"}


@pytest.mark.trio
async def test_messages_with_one_value_of_the_key_go_to_one_queue_in_their_order(rocket: RocketProcess) -> None:
    rows = [{"payload": str(at), "properties": {"customer": at % 3}} for at in range(300)]
    lines = "\n".join(map(json.dumps, rows)).encode()
    await in_thread("post", f"rocketmq://{rocket.nameserver}/keyed?key=customer", "--jsonl", stdin=lines)
    messages = await consumed(rocket, "keyed", 300)
    for customer in range(3):
        mine = [each for each in messages if each.properties["customer"] == str(customer)]
        assert len({(each.broker, each.queue_id) for each in mine}) == 1
        assert [int(each.payload) for each in mine] == list(range(customer, 300, 3))


@pytest.mark.trio
async def test_messages_of_a_topic_have_a_sharding_key_and_are_delivered_later(rocket: RocketProcess) -> None:
    to = f"rocketmq://{rocket.nameserver}/later"
    await in_thread("post", to, "now", "--sharding-key", "k")
    lines = b'{"payload": "soon", "delay_s": 0.5}\n{"payload": "own", "sharding_key": "o"}\n'
    await in_thread("post", to, "--jsonl", "--delay", 1, "--sharding-key", "k", stdin=lines)
    found = {each.payload: each for each in await consumed(rocket, "later", 3)}
    assert [found[name].sharding_key for name in (b"now", b"soon", b"own")] == ["k", "k", "o"]
    delays = {name: message.record.stored_ms - message.record.born_ms for name, message in found.items()}
    assert (delays[b"soon"] >= 400, delays[b"own"] >= 900) == (True, True), delays


def test_a_queue_has_no_delay(node: NodeProcess) -> None:
    _, said = run("post", f"{PRIORITY}/post", "x", "--delay", "1", "-b", node.uri, code=1)
    assert "messages of BlazingMQ have no tag, keys, sharding key, delay and priority: use properties" in said


@pytest.mark.trio
async def test_a_line_that_is_no_message_ends_the_run_behind_those_before_it(node: NodeProcess) -> None:
    queue = f"{PRIORITY}/post-garbage"
    stdin = b'{"payload": "a"}\n{"payload": "b"}\n\xff\n{"payload": "c"}\n'
    output, errors = await in_thread("post", queue, "-b", node.uri, "--jsonl", stdin=stdin, code=1)
    assert output.startswith("2 of 2 messages acknowledged")
    assert errors == "bmqctl post: line 3: is not UTF-8\n"
    assert [payload for payload, _ in await taken(node, queue, 2)] == [b"a", b"b"]


def test_a_queue_that_is_full_ends_the_run(guarded_node: NodeProcess) -> None:
    user = ("--authn-mechanism", "BASIC", "--authn-data", "shop:x")
    words = ("post", "bmq://shop.orders/post", "-b", guarded_node.uri, *user, "--lines", "--json")
    output, errors = run(*words, stdin=b"x\n" * 1000, code=1)
    account = json.loads(output)
    assert account["acknowledged"] == ORDERS_MAX
    assert account["refused"] == account["posted"] - ORDERS_MAX == len(account["failures"]) >= 1
    assert [each["number"] for each in account["failures"]] == list(range(ORDERS_MAX + 1, account["posted"] + 1))
    assert f"bmqctl post: line {ORDERS_MAX + 1}: bmq://shop.orders/post: message" in errors
    assert "was refused: LIMIT_MESSAGES" in errors


def test_wrong_credentials_are_refused(guarded_node: NodeProcess) -> None:
    words = ("post", "bmq://shop.orders/post", "x", "-b", guarded_node.uri)
    _, errors = run(*words, "--authn-mechanism", "BASIC", "--authn-data", "shop:y", code=2)
    assert "the broker refused our credentials" in errors


@pytest.mark.trio
async def test_a_signal_ends_the_input_and_not_the_wait_for_acknowledgments(node: NodeProcess) -> None:
    queue = f"{PRIORITY}/post-signal"
    with started("post", queue, "-b", node.uri, "--lines", "--json") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthree")
        process.stdin.flush()
        assert [payload for payload, _ in await taken(node, queue, 2)] == [b"one", b"two"]
        process.send_signal(signal.SIGINT)
        await eventually_in_trio(lambda: process.poll() is not None)
        assert process.stdout is not None
        account = json.loads(process.stdout.read())
    assert process.returncode == 130
    assert (account["posted"], account["acknowledged"], account["interrupted"]) == (2, 2, True)


def test_without_acknowledgments_the_run_gives_up(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "store") as node:
        words = ("post", f"{PRIORITY}/q", "-b", node.uri, "--lines", "--json", "--patience", "3")
        with started(*words) as process:
            assert process.stdin is not None
            process.stdin.write(b"one\n")
            process.stdin.flush()
            trio.run(taken, node, f"{PRIORITY}/q", 1)
            node.kill()
            output, errors = process.communicate(b"two\n", timeout=WAIT_S)
    account = json.loads(output)
    assert process.returncode == 1
    assert account["ended_by"] == "no answer within 3 s"
    assert account["unanswered"] == account["posted"] - account["acknowledged"] >= 1
    assert b"Traceback" not in errors


def test_a_queue_that_the_broker_refuses_is_told_in_one_line(node: NodeProcess) -> None:
    output, errors = run("post", "bmq://bmq.nowhere/q", "x", "-b", node.uri, code=2)
    assert output == ""
    assert errors.startswith("bmqctl post: cannot open bmq://bmq.nowhere/q")
    assert errors.count("\n") == 1


def test_commands_of_one_message_each_use_all_queues_of_a_topic(rocket: RocketProcess) -> None:
    to = f"rocketmq://{rocket.nameserver}/turns"
    for number in range(16):
        assert CliRunner().invoke(app, ["post", to, str(number)]).exit_code == 0
    messages = trio.run(consumed, rocket, "turns", 16)
    # That 16 random choices of one of four queues are all the same has a probability of one in a billion.
    assert len({each.queue_id for each in messages}) > 1


def test_a_topic_without_a_queue_to_write_is_told_instead_of_waited_for(rocket: RocketProcess) -> None:
    at = ("--nameserver", rocket.nameserver)
    run("topic", "create", "closed", "--set", "perm=4", *at)
    # A command that waited would not end within a day.
    output, errors = run("post", f"rocketmq://{rocket.nameserver}/closed", "x", "--patience", 86_400, code=2)
    assert output == ""
    assert "topic closed takes no messages" in errors
    assert "no broker has a queue of it that can be written" in errors
    assert len(errors.splitlines()) == 1
    (settings,) = json.loads(run("topic", "show", "closed", "--output", "json", *at)[0]).values()
    assert settings["perm"] == 4


def test_an_empty_payload_is_refused_in_one_sentence(node: NodeProcess) -> None:
    for words in ((f"{PRIORITY}/empty", ""), (f"{PRIORITY}/empty",)):
        output, errors = run("post", *words, "-b", node.uri, code=1)
        assert output == ""
        assert errors.endswith(
            "message 1: the payload is empty, and there are no properties: a message has one or the other\n"
        )
        assert len(errors.splitlines()) == 1
