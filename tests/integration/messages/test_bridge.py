"""`bmqctl bridge` between two real nodes, while the nodes and the bridge are killed."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from bmqctl.client.protocol.events import Ack, StreamOptions
from bmqctl.client.protocol.message import Message
from bmqctl.client.remoting.client import Client, RequestRefused
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.link import LinkLost, NoAnswer
from bmqctl.client.remoting.sending import Sender
from bmqctl.client.session import Session, SessionOptions
from bmqctl.testing import NodeProcess, RocketProcess
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property, PropertyType
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.integration.messages.bridge_rig import COMMAND, BridgeProcess, check_account
from tests.rigs.official import queue_name
from tests.waiting import WAIT_S, eventually_in_trio

WORDS = ("--json", "--report", "0.1")
TOPIC = "orders"
# Each part of the messages is on its way while something is killed, and the last one while both are.
PART = 400
PARTS = 4
TOTAL = PART * PARTS
PIECE = 20

Number = tuple[int, int]  # of the lane, and in it


@contextmanager
def nodes(folder: Path) -> Iterator[tuple[NodeProcess, RocketProcess]]:
    with NodeProcess(folder / "bmq") as node, RocketProcess(folder / "rocketmq", grpc_port=0) as rocket:
        yield node, rocket


def check_order(found: list[Number], wanted: int) -> None:
    """Check that all numbers of each lane are there, and that copies of messages are in their order."""
    for lane in {lane for lane, _ in found}:
        numbers = [number for each, number in found if each == lane]
        expected = list(range(wanted))
        assert list(dict.fromkeys(numbers)) == expected, "lost, or a first copy out of order"
        assert list(dict.fromkeys(reversed(numbers))) == expected[::-1], "a last copy out of order"


def in_flight(bridge: BridgeProcess, skip: int) -> int:
    """The messages in flight by the latest report of a bridge; what it said before is skipped."""
    reports = [
        line for line in bridge.told[skip:].splitlines(keepends=True) if line.startswith("{") and line[-1] == "\n"
    ]
    return int(json.loads(reports[-1])["in_flight"]) if reports else 0


async def in_thread(work: Callable[[], object]) -> None:
    await trio.to_thread.run_sync(work)


async def run_story(
    produce: Callable[[int, Callable[[], None]], Awaitable[None]],
    kills: list[Callable[[], object]],
    arrived: Callable[[int], Awaitable[None]],
) -> None:
    """Produce the messages part by part. Something is killed while a part is on its way, and has arrived in part."""
    for at in range(len(kills)):
        half = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, at, half.set)
            await half.wait()
            await arrived(at * PART + PIECE)
            await in_thread(kills[at])


async def lose_what_is_sent(
    bridge: BridgeProcess,
    destination: NodeProcess | RocketProcess,
    produce: Callable[[int, Callable[[], None]], Awaitable[None]],
) -> None:
    """Produce the last part while the destination stands still; then kill it together with the bridge.

    Messages that the bridge sent in that time are only at the source.
    """
    skip = len(bridge.told)
    os.kill(destination.pid, signal.SIGSTOP)
    await produce(PARTS - 1, lambda: None)
    await eventually_in_trio(lambda: in_flight(bridge, skip) >= PART // 2)
    await in_thread(partial(bridge.end, signal.SIGKILL))
    await in_thread(partial(destination.restart, signal.SIGKILL))
    bridge.start()


# From BlazingMQ


async def post_part(uri: str, node: NodeProcess, acked: set[int], part: int, on_half: Callable[[], None]) -> None:
    """Post a part with a session that outlives the node; it ends when all are acknowledged."""
    heard = trio.Event()

    def take(acks: list[Ack]) -> None:
        for ack in acks:
            assert ack.status is AckStatus.SUCCESS
            acked.add(ack.correlation)
        heard.set()

    options = SessionOptions(resume=True)
    async with Session.connect("127.0.0.1", node.port, options, take) as session:
        queue = await session.open_queue(uri, write=True)
        for number in range(part * PART, (part + 1) * PART):
            properties = [Property("n", PropertyType.INT32, number), Property("DELAY", PropertyType.STRING, "3")]
            queue.post_nowait(b"x" * 1000, properties, correlation=number)
            if number % PIECE == 0:
                await session.drain()
            if number == part * PART + PART // 2:
                on_half()
        while not acked.issuperset(range(part * PART, (part + 1) * PART)):
            heard = trio.Event()
            with trio.fail_after(WAIT_S):
                await heard.wait()


async def rocketmq_end(rocket: RocketProcess) -> int:
    """The messages that the topic has; 0 while it cannot be asked."""
    try:
        async with Client.connect("127.0.0.1", rocket.nameserver_port) as client:
            found = await client.queues(TOPIC)
            if not found:
                return 0
            puller = QueuePuller(await client.link_to(found[0].address), "test", TOPIC, 0, 10.0)
            await puller.seek_end()
            return puller.offset
    except (OSError, LinkLost, NoAnswer, RequestRefused):
        return 0


async def read_topic(rocket: RocketProcess) -> list[dict[str, str]]:
    """The properties of all messages of the topic's first queue."""
    end = await rocketmq_end(rocket)
    found = []
    async with Client.connect("127.0.0.1", rocket.nameserver_port) as client:
        (queue, *_) = await client.queues(TOPIC)
        puller = QueuePuller(await client.link_to(queue.address), "test", TOPIC, 0, 10.0)
        while puller.offset < end:
            found += [decode_properties(record.properties) for record in await puller.pull_records(32)]
    return found


def test_to_rocketmq_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    with nodes(tmp_path) as (node, rocket):
        trio.run(_to_rocketmq, tmp_path, node, rocket)


async def _to_rocketmq(folder: Path, node: NodeProcess, rocket: RocketProcess) -> None:
    uri = queue_name("bmq.test.persistent.priority")
    bridge = BridgeProcess([*WORDS, "-b", node.uri, uri, f"rocketmq://{rocket.nameserver}/{TOPIC}"], folder)
    acked: set[int] = set()

    async def arrived(wanted: int) -> None:
        with trio.fail_after(WAIT_S):
            while await rocketmq_end(rocket) < wanted:
                await trio.sleep(0.02)

    try:
        bridge.start()
        kills: list[Callable[[], object]] = [
            bridge.restart,
            partial(node.restart, signal.SIGKILL),
            partial(rocket.restart, signal.SIGKILL),
        ]
        produce = partial(post_part, uri, node, acked)
        await run_story(produce, kills, arrived)
        await lose_what_is_sent(bridge, rocket, produce)
        assert acked == set(range(TOTAL))
        messages: list[dict[str, str]] = []
        with trio.fail_after(WAIT_S):
            while len({each["n"] for each in messages}) < TOTAL:
                messages = await read_topic(rocket)
        account = check_account(*bridge.end(signal.SIGTERM))
    finally:
        bridge.close()
    check_order([(0, int(each["n"])) for each in await read_topic(rocket)], TOTAL)
    # The process that printed the account carried the last part.
    assert account["delivered"] >= PART
    assert messages[0]["bmq_types"] == '{"n":"INT32"}'
    assert "DELAY" not in messages[0]
    # All was confirmed: a further bridge finds nothing.
    await check_nothing_left(bridge, ["--until-idle", "0.5"])


async def check_nothing_left(bridge: BridgeProcess, words: list[str]) -> None:
    done = await trio.run_process([*COMMAND, *words, *bridge._words], capture_stdout=True)
    assert check_account(done.returncode, done.stdout.decode())["taken"] == 0


# From RocketMQ


async def send_part(rocket: RocketProcess, sent: set[Number], part: int, on_half: Callable[[], None]) -> None:
    """Send a part to two queues, piece by piece; what is not answered is sent again."""
    sender = Sender("test", TOPIC)
    for begin in range(part * PART, (part + 1) * PART, PIECE):
        bodies = [str(number).encode() for number in range(begin, begin + PIECE)]
        for queue_id in (0, 1):
            fields, body = sender.batch(queue_id, time.time_ns() // 1_000_000, bodies)
            with trio.fail_after(WAIT_S):
                while not await is_taken(rocket, fields, body):
                    await trio.sleep(0.05)
            sent |= {(queue_id, number) for number in range(begin, begin + PIECE)}
        if begin == part * PART + PART // 2:
            on_half()


async def is_taken(rocket: RocketProcess, fields: dict[str, str], body: bytes) -> bool:
    try:
        async with Client.connect("127.0.0.1", rocket.nameserver_port) as client:
            found = await client.queues(TOPIC)
            if not found:
                return False
            link = await client.link_to(found[0].address)
            answer = await link.call(RequestCode.SEND_BATCH_MESSAGE, fields, 10.0, body)
            return answer.code == ResponseCode.SUCCESS
    except (OSError, LinkLost, NoAnswer, RequestRefused):
        return False


class Reader:
    """A consumer that confirms nothing: it keeps all messages of a queue in their order, over the node's ends."""

    def __init__(self, node: NodeProcess, uri: str) -> None:
        self._node = node
        self._uri = uri

    async def read(self, enough: Callable[[list[Number]], bool]) -> list[Number]:
        """Read the queue from its beginning until there is enough."""
        options = StreamOptions(max_unconfirmed_messages=100 * TOTAL, max_unconfirmed_bytes=1 << 30)
        found: list[Number] = []
        async with Session.connect("127.0.0.1", self._node.port) as session:
            queue = await session.open_queue(self._uri, read=True, options=options)
            with trio.fail_after(WAIT_S):
                while not enough(found):
                    for message in await queue.receive():
                        lane = str(message.properties["rocketmq_queue"])
                        found.append((int(lane.rpartition("/")[2]), int(message.payload)))
        return found


def test_to_blazingmq_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    with nodes(tmp_path) as (node, rocket):
        trio.run(_to_blazingmq, tmp_path, node, rocket)


async def _to_blazingmq(folder: Path, node: NodeProcess, rocket: RocketProcess) -> None:
    async with Client.connect("127.0.0.1", rocket.nameserver_port) as client:
        await client.create_topic(TOPIC, 2)
    uri = queue_name("bmq.test.persistent.priority")
    reader = Reader(node, uri)
    bridge = BridgeProcess(
        [*WORDS, "-b", node.uri, f"rocketmq://{rocket.nameserver}/{TOPIC}?group=bridge", uri], folder
    )
    sent: set[Number] = set()

    async def arrived(wanted: int) -> None:
        await reader.read(lambda found: len(set(found)) >= wanted)

    try:
        bridge.start()
        kills: list[Callable[[], object]] = [
            bridge.restart,
            partial(rocket.restart, signal.SIGKILL),
            partial(node.restart, signal.SIGKILL),
        ]
        produce = partial(send_part, rocket, sent)
        await run_story(produce, kills, arrived)
        await lose_what_is_sent(bridge, node, produce)
        assert sent == {(lane, number) for lane in (0, 1) for number in range(TOTAL)}
        await reader.read(lambda found: len(set(found)) == 2 * TOTAL)
        account = check_account(*bridge.end(signal.SIGTERM))
    finally:
        bridge.close()
    found = await reader.read(lambda found: len(set(found)) == 2 * TOTAL)
    check_order(found, TOTAL)
    assert account["delivered"] >= 2 * PART
    await check_nothing_left(bridge, ["--until-idle", "0.5"])


# Several bridges, and refusals


TYPED = [
    Property("KEYS", PropertyType.STRING, "a b"),
    Property("DELAY", PropertyType.STRING, "5"),
    Property("empty", PropertyType.STRING, ""),
    Property("amount", PropertyType.INT64, -(1 << 60)),
    Property("small", PropertyType.SHORT, -3),
    Property("paid", PropertyType.BOOL, True),
    Property("grade", PropertyType.CHAR, b"\xfe"),
    Property("raw", PropertyType.BINARY, b"\x01\x02\xff"),
]


async def post_all(node: NodeProcess, uri: str, messages: list[tuple[bytes, list[Property]]]) -> None:
    async with Session.connect("127.0.0.1", node.port) as session:
        queue = await session.open_queue(uri, write=True)
        for payload, properties in messages:
            assert (await queue.post(payload, properties)).status is AckStatus.SUCCESS


def test_messages_come_back_as_they_were(tmp_path: Path) -> None:
    with nodes(tmp_path) as (node, rocket):
        trio.run(_messages_come_back, tmp_path, node, rocket)


async def _messages_come_back(folder: Path, node: NodeProcess, rocket: RocketProcess) -> None:
    """Two bridges of one process: to a topic, by a key, and from there to another queue."""
    here, there = (queue_name("bmq.test.persistent.priority") for _ in range(2))
    topic = f"rocketmq://{rocket.nameserver}/{TOPIC}"
    async with Client.connect("127.0.0.1", rocket.nameserver_port) as client:
        await client.create_topic(TOPIC, 4)
    (folder / "bridges.toml").write_text(
        f"""
        [[bridge]]
        name = "out"
        from = "{here}"
        to = "{topic}?key=lane"

        [[bridge]]
        name = "back"
        from = "{topic}?group=back"
        to = "{there}"
        """
    )
    metrics = folder / "bridges.prom"
    words = ["--json", "-b", node.uri, "--config", str(folder / "bridges.toml"), "--metrics", str(metrics)]
    bridge = BridgeProcess(words, folder)
    lanes = 10
    count = 300
    wanted = [
        (str(number).encode(), [*TYPED, Property("lane", PropertyType.INT32, number % lanes)])
        for number in range(count)
    ]
    try:
        bridge.start()
        await post_all(node, here, wanted)
        found: list[Message] = []
        async with Session.connect("127.0.0.1", node.port) as session:
            queue = await session.open_queue(there, read=True)
            with trio.fail_after(WAIT_S):
                while len(found) < count:
                    found += await queue.receive()
        code, output = bridge.end(signal.SIGTERM)
    finally:
        bridge.close()
    accounts = json.loads(output)["bridges"]
    assert code == 0
    assert [(each["name"], each["delivered"], each["in_flight"]) for each in accounts] == [
        ("out", count, 0),
        ("back", count, 0),
    ]
    for name in ("out", "back"):
        assert f'bmqctl_bridge_delivered_total{{bridge="{name}"}} {count}\n' in metrics.read_text()
    assert sorted(path.name for path in folder.glob("*.prom*")) == [metrics.name]
    for lane in range(lanes):
        numbers = [int(each.payload) for each in found if each.properties["lane"] == lane]
        assert numbers == list(range(lane, count, lanes))
    assert len({each.properties["rocketmq_queue"] for each in found}) > 1
    for each in found:
        marks = {"bmq_guid", "rocketmq_id", "rocketmq_queue", "rocketmq_offset"}
        carried = [item for item in each.typed_properties if item.name not in marks]
        assert sorted(carried) == sorted(wanted[int(each.payload)][1])


def test_messages_that_cannot_be_carried(tmp_path: Path) -> None:
    uri = queue_name("bmq.test.persistent.priority")
    wide = Property("wide", PropertyType.STRING, "x" * 40_000)
    with nodes(tmp_path) as (node, rocket):
        words = ["--json", "--until-idle", "1", "-b", node.uri, uri, f"rocketmq://{rocket.nameserver}/{TOPIC}"]
        messages = [(b"0", []), (b"1", [wide]), (b"2", []), (b"x" * (5 << 20), []), (b"4", [])]
        trio.run(post_all, node, uri, messages)
        first = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
        (account,) = json.loads(first.stdout)["bridges"]
        assert first.returncode == 1
        assert account["ended_by"].startswith("a message cannot be carried: properties of 40")
        assert f"{account['ended_by']}; it stays at the source" in first.stderr
        assert "--skip-refused" in first.stderr
        assert (account["delivered"], account["refused"], account["in_flight"]) == (1, 1, 0)
        # Refused messages are still there, and come again.
        words.insert(0, "--skip-refused")
        second = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
        (account,) = json.loads(second.stdout)["bridges"]
        assert second.returncode == 1
        assert (account["taken"], account["delivered"], account["refused"], account["in_flight"]) == (4, 2, 2, 0)
        reasons = sorted(account["refused_by_reason"])
        assert reasons[0].startswith("properties of 40")
        words[words.index("--json")] = "--output=csv"
        third = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
        (row,) = csv.DictReader(io.StringIO(third.stdout))
        assert (row["from"], row["delivered"]) == (uri, "0")
        assert reasons[1].startswith("the message is illegal")
        assert trio.run(rocketmq_end, rocket) == 3
