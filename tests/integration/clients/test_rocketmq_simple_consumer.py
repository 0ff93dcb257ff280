"""Simple consumers of the client library against a real RocketMQ node, under asyncio and trio."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from bmqctl.client.rocketmq import ConsumerClosed, HiddenMessage, RequestRefused, SimpleConsumer, connect
from bmqctl.testing import RocketProcess
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as started:
        yield started


def uri_of(node: RocketProcess) -> str:
    return f"rocketmq://{node.nameserver}"


async def receive(consumer: SimpleConsumer, count: int = 1) -> list[HiddenMessage]:
    """Wait for `count` messages."""
    found: list[HiddenMessage] = []
    with anyio.fail_after(WAIT_S):
        while len(found) < count:
            found += await consumer.receive(min(32, count - len(found)))
    return found


async def test_confirmed_message_comes_once(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"simple-{anyio_backend_name}"
    async with connect(uri_of(node)) as session, connect(uri_of(node)) as other:
        producer = await session.producer(topic)
        await producer.post_all(b"%d" % number for number in range(200))
        members = [await each.simple_consumer(topic, f"{topic}-group", from_start=True) for each in (session, other)]
        found: Counter[bytes] = Counter()

        async def consume(consumer: SimpleConsumer) -> None:
            while messages := await consumer.receive(32, wait_s=0):
                for message in messages:
                    async with message:
                        found[message.payload] += 1

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                for each in members:
                    tasks.start_soon(consume, each)
        assert found == Counter({b"%d" % number: 1 for number in range(200)})
        assert await members[0].receive(wait_s=0) == []


async def test_a_message_that_comes_later_ends_the_wait(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"simple-later-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        await producer.post(b"first")
        consumer = await session.simple_consumer(topic, f"{topic}-group", from_start=True)
        (first,) = await receive(consumer)
        await first.confirm()
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(producer.post, b"second", {"a": "b"})
                (second,) = await consumer.receive(wait_s=WAIT_S)
        assert (second.payload, second.properties, second.attempt, second.topic) == (b"second", {"a": "b"}, 1, topic)
        assert 0 < second.left_s <= 60


async def test_message_of_a_failed_block_comes_again_and_becomes_a_dead_letter(
    node: RocketProcess, anyio_backend_name: str
) -> None:
    topic = f"simple-again-{anyio_backend_name}"
    group = f"{topic}-group"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        sent = await producer.post(b"poison", {"n": "1"})
        consumer = await session.simple_consumer(topic, group, from_start=True, attempts_max=2)
        for attempt in (1, 2):
            (message,) = await receive(consumer)
            with pytest.raises(ZeroDivisionError):
                async with message:
                    raise ZeroDivisionError
            assert (message.message_id, message.attempt, message.payload) == (sent.message_id, attempt, b"poison")
            assert (message.topic, message.properties) == (topic, {"n": "1"})
        with anyio.fail_after(WAIT_S):
            while True:
                # The third delivery is that to the dead letters.
                assert await consumer.receive(wait_s=0.1) == []
                try:
                    dead = await session.simple_consumer(f"%DLQ%{group}", f"{group}-dead", from_start=True)
                    break
                except RequestRefused:
                    continue
        (message,) = await receive(dead)
        assert message.payload == b"poison"


async def test_a_message_is_hidden_as_long_as_it_is_told(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"simple-hidden-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        await producer.post(b"x")
        consumer = await session.simple_consumer(topic, f"{topic}-group", from_start=True, hidden_s=2)
        (message,) = await receive(consumer)
        began = time.monotonic()
        await message.hide(3)
        assert message.left_s > 2
        # The second time is the one that counts: the first is over by then.
        (again,) = await receive(consumer)
        assert time.monotonic() - began > 2.5
        assert again.attempt == 2
        with pytest.raises(RequestRefused, match=r"the time of message .* is over.*hidden_s"):
            await message.confirm()
        await again.confirm()


async def test_tags_and_expressions_select_messages(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"simple-tags-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        for number in range(10):
            await producer.post(b"%d" % number, {"number": str(number)}, tag="AB"[number % 2])
        tagged = await session.simple_consumer(topic, f"{topic}-a", tags="A", from_start=True)
        assert sorted(each.payload for each in await receive(tagged, 5)) == [b"0", b"2", b"4", b"6", b"8"]
        chosen = await session.simple_consumer(topic, f"{topic}-sql", sql="number > 6", from_start=True)
        assert sorted(each.payload for each in await receive(chosen, 3)) == [b"7", b"8", b"9"]
        wrong = await session.simple_consumer(topic, f"{topic}-wrong", sql="number >", from_start=True)
        with pytest.raises(RequestRefused, match=f"group {topic}-wrong of topic {topic} .*SUBSCRIPTION_PARSE_FAILED"):
            await wrong.receive()


async def test_a_closed_consumer_says_so(node: RocketProcess, anyio_backend_name: str) -> None:
    topic = f"simple-closed-{anyio_backend_name}"
    async with connect(uri_of(node)) as session:
        producer = await session.producer(topic)
        await producer.post(b"x")
        consumer = await session.simple_consumer(topic, "closed", from_start=True)
        (message,) = await receive(consumer)
        with pytest.raises(ValueError, match="in group closed already"):
            await session.simple_consumer(topic, "closed")
        await consumer.close()
        assert consumer.is_closed
        for use in (consumer.receive, message.confirm):
            with pytest.raises(ConsumerClosed, match=f"group closed of topic {topic}"):
                await use()
        with pytest.raises(RequestRefused, match="create the topic"):
            await session.simple_consumer(f"{topic}-nothing", "closed")
        for count in (0, 33):
            with pytest.raises(ValueError, match="from 1 to 32"):
                await (await session.simple_consumer(topic, f"count-{count}")).receive(count)


async def test_a_broker_that_is_gone_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RocketProcess(tmp_path_factory.mktemp("gone"), grpc_port=0) as node:
        async with connect(uri_of(node), timeout_s=2) as session:
            producer = await session.producer("gone")
            await producer.post(b"x")
            consumer = await session.simple_consumer("gone", "group", from_start=True)
            (message,) = await receive(consumer)
            await anyio.to_thread.run_sync(node.kill)
            for use in (consumer.receive, message.confirm):
                with pytest.raises(RequestRefused, match=f"group group of topic gone at {node.nameserver}: "):
                    await use()
            await anyio.to_thread.run_sync(node.start)
            with anyio.fail_after(WAIT_S):
                while True:
                    try:
                        await message.confirm()
                        break
                    except RequestRefused:
                        await anyio.sleep(0.05)
