"""The client library against real RocketMQ nodes, under asyncio and trio, with the C++ client at the other end."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import bmqctl.client
from bmqctl.client import ClientError, ConnectFailed
from bmqctl.client.rocketmq import Consumer, ConsumerClosed, Message, PostRefused, RequestRefused, connect
from bmqctl.testing import RocketProcess, free_port
from scripts.judges.cpp_client import CannotInstall, cpp_python
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio

PEER = Path(__file__).parents[2] / "rigs" / "programs" / "rocketmq_library_peer.py"
COUNT = 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as started:
        yield started


def uri_of(node: RocketProcess) -> str:
    return f"rocketmq://{node.nameserver}"


async def take(consumer: Consumer, count: int) -> list[Message]:
    """Confirm `count` messages and return them."""
    messages: list[Message] = []
    with anyio.fail_after(WAIT_S):
        while len(messages) < count:
            async with await anext(consumer) as message:
                messages.append(message)
    return messages


async def until(look: Callable[[], bool]) -> None:
    """Wait until something that the library does in the background is so."""
    with anyio.fail_after(WAIT_S):
        while not look():
            await anyio.sleep(0.02)


async def test_a_message_comes_with_all_that_it_had(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"all-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        sent = await producer.post(b"first", {"name": "näme"}, tag="A", keys=["k1", "k2"], sharding_key="s")
        await producer.post(b"second", tag="B")
        at = datetime.now(UTC) + timedelta(seconds=1)
        await producer.post(b"third", tag="A", deliver_at=at)
        consumer = await session.consume(topic, f"{topic}-group", tags="A || C", from_start=True)
        first, third = await take(consumer, 2)
        assert (first.payload, first.properties, first.tag) == (b"first", {"name": "näme"}, "A")
        assert (first.keys, first.sharding_key, first.attempt, first.topic) == (["k1", "k2"], "s", 1, topic)
        assert (first.message_id, first.broker, first.queue_id, first.offset) == sent[:4]
        assert (third.payload, third.properties) == (b"third", {})
        assert datetime.now(UTC) >= at


async def test_an_expression_selects_messages(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"sql-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        async with producer.batch() as batch:
            for number in range(10):
                await batch.post(b"%d" % number, {"number": str(number)})
        consumer = await session.consume(topic, f"{topic}-group", sql="number > 6", from_start=True)
        assert sorted(message.payload for message in await take(consumer, 3)) == [b"7", b"8", b"9"]
        await consumer.close()
        wrong = await session.consume(topic, f"{topic}-group-2", sql="number >", from_start=True)
        with pytest.raises(
            RequestRefused, match=f"group {topic}-group-2 of topic {topic} .* SUBSCRIPTION_PARSE_FAILED"
        ):
            with anyio.fail_after(WAIT_S):
                await anext(wrong)


async def test_messages_of_a_key_are_in_order(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"ordered-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        async with producer.batch() as batch:
            for number in range(300):
                await batch.post(b"%d" % number, sharding_key=f"customer {number % 3}")
        consumer = await session.consume(topic, f"{topic}-group", from_start=True)
        found: dict[str | None, list[int]] = {}
        for message in await take(consumer, 300):
            found.setdefault(message.sharding_key, []).append(int(message.payload))
        assert found == {f"customer {key}": list(range(key, 300, 3)) for key in range(3)}


async def test_rejected_message_comes_again_and_becomes_a_dead_letter(
    node: RocketProcess, anyio_backend_name: str
) -> None:
    topic = f"again-{anyio_backend_name}"
    group = f"{topic}-group"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        sent = await producer.post(b"poison", {"n": "1"})
        consumer = await session.consume(topic, group, from_start=True)
        with anyio.fail_after(WAIT_S):
            message = await anext(consumer)
            message.reject(delay_level=1)
            again = await anext(consumer)
        assert (again.message_id, again.attempt, again.topic) == (sent.message_id, 2, topic)
        assert (again.payload, again.properties) == (b"poison", {"n": "1"})
        with pytest.raises(ZeroDivisionError):
            async with again:
                raise ZeroDivisionError
        assert again.is_settled
        await producer.post(b"worse")
        with anyio.fail_after(WAIT_S):
            while (worse := await anext(consumer)).payload != b"worse":
                worse.confirm()
        worse.reject(delay_level=-1)
        await consumer.close()
        late = Message(consumer, worse.lane, worse.progress, worse.record, topic)
        with pytest.raises(ConsumerClosed, match=group):
            late.confirm()
        dead = await session.consume(f"%DLQ%{group}", f"{group}-dead", from_start=True)
        (letter,) = await take(dead, 1)
        assert letter.payload == b"worse"


async def test_members_share_the_queues(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"shared-{anyio_backend_name}"
    group = f"{topic}-group"
    async with connect(uri_of(node)) as session, connect(uri_of(node)) as other:
        producer = await session.producer(topic)
        await producer.post(b"makes the topic")
        first = await session.consume(topic, group, from_start=True)
        await take(first, 1)
        with pytest.raises(ValueError, match="in group"):
            await session.consume(topic, group)
        second = await other.consume(topic, group, from_start=True)
        await until(lambda: len(first.queues) == len(second.queues) == 2)
        assert not set(first.queues) & set(second.queues)
        await producer.post_all(b"%d" % number for number in range(100))
        found: Counter[bytes] = Counter()

        async def consume(consumer: Consumer) -> None:
            async for message in consumer:
                async with message:
                    found[message.payload] += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume, first)
            tasks.start_soon(consume, second)
            await until(lambda: found.keys() >= {b"%d" % number for number in range(100)})
            await second.close()
            await until(lambda: len(first.queues) == 4)
            await first.close()
        # Confirmed messages are committed: a third member begins after them.
        third = await session.consume(topic, group, from_start=True)
        await producer.post(b"last")
        assert [message.payload for message in await take(third, 1)] == [b"last"]


async def test_each_member_gets_all_of_a_broadcast(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"broadcast-{anyio_backend_name}"
    async with connect(uri_of(node)) as session, connect(uri_of(node)) as other:
        producer = await session.producer(topic)
        await producer.post(b"makes the topic")
        members = [
            await each.consume(topic, f"{topic}-group", broadcast=True, from_start=True) for each in (session, other)
        ]
        for member in members:
            assert [message.payload for message in await take(member, 1)] == [b"makes the topic"]


async def test_a_session_outlives_its_broker(tmp_path: Path, anyio_backend_name: str) -> None:
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        async with connect(uri_of(node)) as session:
            producer = await session.producer("killed")
            await producer.post_all(b"%d" % number for number in range(500))
            consumer = await session.consume("killed", "group", from_start=True)
            found = Counter(message.payload for message in await take(consumer, 100))

            async def produce() -> None:
                async with producer.batch() as batch:
                    for number in range(500, 3000):
                        await batch.post(b"%d" % number)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce)
                await anyio.to_thread.run_sync(node.kill)
                await anyio.to_thread.run_sync(node.start)
            wanted = {b"%d" % number for number in range(3000)}
            with anyio.fail_after(WAIT_S):
                while not found.keys() >= wanted:
                    async with await anext(consumer) as message:
                        found[message.payload] += 1
            assert found.keys() == wanted
            # This consumer has gone on where it was.
            assert all(found[b"%d" % number] == 1 for number in range(500))


async def test_a_post_that_nobody_takes_fails_in_time(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        async with connect(uri_of(node), retry_s=0.5) as session:
            producer = await session.producer("lost")
            await producer.post(b"taken")
            await anyio.to_thread.run_sync(node.kill)
            with pytest.raises(ClientError, match=f"topic lost at {node.nameserver} at 127.0.0.1:{node.port}"):
                with anyio.fail_after(WAIT_S):
                    await producer.post(b"not taken")


async def test_refusals_name_the_place_and_the_topic(node: RocketProcess) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectFailed, match=f"nameserver of RocketMQ \\({nobody}: .*is it running there"):
        async with connect(f"rocketmq://{nobody}"):
            raise AssertionError("a session with nobody")
    # One of several is enough.
    async with connect(f"rocketmq://{nobody},{node.nameserver}") as session:
        with pytest.raises(RequestRefused, match=f"{node.nameserver} knows no topic nothing.*create the topic"):
            await session.consume("nothing", "group")
        producer = await session.producer("some")
        with pytest.raises(PostRefused, match=r"topic some at .*MESSAGE_ILLEGAL"):
            await producer.post(b"x" * (5 << 20))


async def test_the_librarys_connect_takes_both_systems(node: RocketProcess) -> None:
    async with bmqctl.client.connect(uri_of(node)) as session:
        assert repr(session) == f"<Session with {node.nameserver}>"
    with pytest.raises(ValueError, match="process_name"):
        async with bmqctl.client.connect(uri_of(node), process_name="x"):
            raise AssertionError("a session with a name")


async def test_cpp_client_and_library_understand_each_other(
    node: RocketProcess, tmp_path: Path, anyio_backend_name: str
) -> None:
    try:
        python = await anyio.to_thread.run_sync(cpp_python)
    except CannotInstall as reason:
        pytest.skip(str(reason))
    topic = f"cpp-{anyio_backend_name}"
    words = [str(python), str(PEER), node.nameserver, topic, str(COUNT)]
    async with connect(uri_of(node)) as session:
        producer = await session.producer(f"{topic}-to-peer")
        async with producer.batch() as batch:
            for number in range(COUNT):
                await batch.post(b"%d" % number, {"number": str(number)}, tag="wanted", keys=[f"k{number}"])
                await batch.post(b"no", tag="unwanted")
        run = partial(
            subprocess.run,
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={"PYTHONPATH": "", "HOME": str(tmp_path)},
        )
        done = await anyio.to_thread.run_sync(run)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == sorted([str(each), "wanted", f"k{each}", str(each)] for each in range(COUNT))
        consumer = await session.consume(f"{topic}-to-library", f"{topic}-group", tags="odd", from_start=True)
        found = {message.properties["number"]: message for message in await take(consumer, COUNT // 2)}
        assert sorted(map(int, found)) == list(range(1, COUNT, 2))
        for name, message in found.items():
            assert message.payload == f"body {name} ".encode() * 1000
            assert (message.tag, message.keys) == ("odd", [f"k{name}"])
