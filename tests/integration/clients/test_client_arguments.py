"""Arguments of the client libraries at their bounds and beyond: what cannot be right is refused where it is given.

The session and its other queues go on, whatever one call was given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import anyio
import pytest

from bmqctl import client
from bmqctl.client import Change, ClientError, Credentials, Property, PropertyType, Subscription, rocketmq
from bmqctl.systems.node_process import RocketProcess
from bmqctl.testing import NodeProcess
from tests.rigs.client_parameters import BLAZINGMQ, ROCKETMQ, Values, public_parameters
from tests.waiting import WAIT_S

NUMBERS = count()

Call = Callable[[dict[str, Any]], Awaitable[object]]


def test_each_parameter_of_a_public_call_has_its_values() -> None:
    """A new parameter must be listed, and so must the end of one."""
    assert sorted(public_parameters(client)) == sorted(BLAZINGMQ)
    assert sorted(public_parameters(rocketmq)) == sorted(ROCKETMQ)


@asynccontextmanager
async def bounded() -> AsyncIterator[None]:
    with anyio.fail_after(WAIT_S):
        yield


async def check(call: Call, usual: Mapping[str, Any], name: str, values: Values, unharmed: Call) -> None:
    """Make a call with each value of one parameter, and see each time that the session goes on."""
    for value in values.bad:
        try:
            async with bounded():
                await call({**usual, name: value})
        except (ValueError, TypeError):
            pass
        else:
            pytest.fail(f"{name}={value!r:.80} is taken")
        async with bounded():
            await unharmed({})
    for value in values.good:
        # The broker may refuse what could be right.
        with suppress(ClientError):
            async with bounded():
                await call({**usual, name: value})
        async with bounded():
            await unharmed({})


def queue_uri() -> str:
    return f"bmq://bmq.test.mem.priority/q{next(NUMBERS)}"


class Blazing:
    """The calls of a session with a node of BlazingMQ, each with its usual arguments."""

    def __init__(self, uri: str, session: client.Session, queue: client.Queue, other: client.Queue) -> None:
        self.session = session
        self.queue = queue
        self.other = other
        self.calls: dict[str, tuple[Call, dict[str, Any]]] = {
            "connect": (self.connect, {"uri": uri}),
            "Session.open": (self.open, {"read": True}),
            "Session.set_host_health": (lambda given: session.set_host_health(**given), {}),
            "Queue.post": (lambda given: queue.post(**given), {"payload": b"x"}),
            "Queue.send": (self.send, {"payload": b"x"}),
            "Queue.post_all": (lambda given: queue.post_all(**given), {"payloads": [b"x"]}),
            "Queue.receive": (self.receive, {}),
            "Queue.configure": (lambda given: queue.configure(**given), {}),
            "Queue.confirm_all": (self.confirm_all, {}),
            "Batch.post": (self.batch_post, {"payload": b"x"}),
            "Batch.post_all": (self.batch_post_all, {"payloads": [b"x"]}),
            "Subscription": (self.subscribe, {}),
        }

    async def unharmed(self, _: dict[str, Any]) -> None:
        """Post to the other queue of the session."""
        await self.other.post(b"x")

    async def connect(self, given: dict[str, Any]) -> None:
        async with client.connect(**given) as session:
            queue = await session.open(queue_uri(), write=True)
            await queue.post(b"x")

    async def open(self, given: dict[str, Any]) -> None:
        uri = given.pop("uri") if "uri" in given else queue_uri()
        async with await self.session.open(uri, **given):
            pass

    async def send(self, given: dict[str, Any]) -> None:
        await (await self.queue.send(**given))

    async def receive(self, given: dict[str, Any]) -> None:
        await self.queue.post(b"x")
        self.queue.confirm_all(await self.queue.receive(**given))

    async def confirm_all(self, given: dict[str, Any]) -> None:
        self.queue.confirm_all(**given)

    async def batch_post(self, given: dict[str, Any]) -> None:
        async with self.queue.batch() as batch:
            await batch.post(**given)

    async def batch_post_all(self, given: dict[str, Any]) -> None:
        async with self.queue.batch() as batch:
            await batch.post_all(**given)

    async def subscribe(self, given: dict[str, Any]) -> None:
        await self.open({"read": True, "subscriptions": [Subscription(**given)]})


@pytest.fixture(scope="module")
def blazingmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("blazingmq") / "store") as node:
        yield node


CALLS_OF_BLAZINGMQ = sorted({name.rpartition(".")[0] for name in BLAZINGMQ} - {"Credentials", "Property"})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", CALLS_OF_BLAZINGMQ)
def test_arguments_of_blazingmqs_client(blazingmq: NodeProcess, name: str, backend: str) -> None:
    changes: list[Change] = []

    async def main() -> None:
        async with client.connect(blazingmq.uri, on_change=changes.append) as session:
            queue = await session.open(queue_uri(), read=True, write=True)
            other = await session.open(queue_uri(), read=True, write=True)
            blazing = Blazing(blazingmq.uri, session, queue, other)
            call, usual = blazing.calls[name]
            for parameter, values in BLAZINGMQ.items():
                if parameter.rpartition(".")[0] == name:
                    await check(call, usual, parameter.rpartition(".")[2], values, blazing.unharmed)

    anyio.run(main, backend=backend)
    assert changes == []


def test_a_message_is_confirmed_at_its_own_queue(blazingmq: NodeProcess) -> None:
    async def main() -> None:
        async with client.connect(blazingmq.uri) as session, bounded():
            queue, other = [await session.open(queue_uri(), read=True, write=True) for _ in range(2)]
            await other.post(b"x")
            messages = await other.receive()
            with pytest.raises(ValueError, match="a message of another queue: expected messages of bmq://"):
                queue.confirm_all(messages)
            assert not messages[0].is_settled
            other.confirm_all(messages)

    anyio.run(main)


def test_a_range_is_named(blazingmq: NodeProcess) -> None:
    async def main() -> None:
        async with client.connect(blazingmq.uri) as session:
            said = "max_unconfirmed_messages is -1: expected a whole number from 0 to 9223372036854775807"
            with pytest.raises(ValueError, match=said):
                await session.open(queue_uri(), read=True, max_unconfirmed_messages=-1)
            said = "priority is 2147483648: expected a whole number from -1073741824 to 1073741823"
            with pytest.raises(ValueError, match=said):
                await session.open(queue_uri(), read=True, priority=1 << 31)
        with pytest.raises(ValueError, match="timeout_s is 0: expected a number of seconds, above 0 to 1000000000"):
            async with client.connect(blazingmq.uri, timeout_s=0):
                pass

    anyio.run(main)


def test_credentials_are_not_shown() -> None:
    async def main() -> None:
        for given in (("BASIC", "user:secret"), Credentials("BASIC", b"secret" * (1 << 20))):
            with pytest.raises(ValueError, match="credentials: expected the name of a mechanism") as refused:
                async with client.connect("tcp://127.0.0.1:1", credentials=given):
                    pass
            assert "secret" not in str(refused.value)

    anyio.run(main)


def test_a_property_of_each_type_is_checked() -> None:
    """The classes that programs make are checked where they are used."""
    assert Property("x", PropertyType.SHORT, 1 << 15).value == 1 << 15


# -- RocketMQ


class Rocket:
    """The calls of a session with a node of RocketMQ, each with its usual arguments."""

    def __init__(self, uri: str, session: rocketmq.Session, producer: rocketmq.Producer) -> None:
        self.session = session
        self.producer = producer
        topic = producer.topic
        self.calls: dict[str, tuple[Call, dict[str, Any]]] = {
            "connect": (self.connect, {"uri": uri, "retry_s": 5}),
            "Session.producer": (self.make_producer, {"topic": topic}),
            "Session.consume": (self.consume, {"topic": topic}),
            "Session.simple_consumer": (self.simple_consumer, {"topic": topic}),
            "Session.stored_queues": (lambda given: session.stored_queues(**given), {}),
            "StoredQueue.read": (self.read, {"offset": 0}),
            "Consumer.receive": (self.receive, {}),
            "Message.reject": (self.reject, {}),
            "SimpleConsumer.receive": (self.receive_simply, {}),
            "HiddenMessage.hide": (self.hide, {}),
            "Producer.post": (lambda given: producer.post(**given), {"payload": b"x"}),
            "Producer.send": (self.send, {"payload": b"x"}),
            "Producer.post_all": (lambda given: producer.post_all(**given), {"payloads": [b"x"]}),
            "Batch.post": (self.batch_post, {"payload": b"x"}),
        }

    async def unharmed(self, _: dict[str, Any]) -> None:
        """Post to the topic of the session's first producer."""
        await self.producer.post(b"x")

    async def connect(self, given: dict[str, Any]) -> None:
        async with rocketmq.connect(**given) as session:
            producer = await session.producer(self.producer.topic)
            await producer.post(b"x")

    async def make_producer(self, given: dict[str, Any]) -> None:
        await (await self.session.producer(**given)).post(b"x")

    async def consume(self, given: dict[str, Any]) -> None:
        group = given.pop("group") if "group" in given else f"g{next(NUMBERS)}"
        async with await self.session.consume(group=group, **given) as consumer:
            with anyio.move_on_after(0.3):
                await consumer.receive()

    async def simple_consumer(self, given: dict[str, Any]) -> None:
        group = given.pop("group") if "group" in given else f"g{next(NUMBERS)}"
        async with await self.session.simple_consumer(group=group, **given) as consumer:
            await consumer.receive(wait_s=0)

    async def read(self, given: dict[str, Any]) -> None:
        await (await self.session.stored_queues(self.producer.topic))[0].read(**given)

    async def receive(self, given: dict[str, Any]) -> None:
        await self.producer.post(b"x")
        group = f"g{next(NUMBERS)}"
        async with await self.session.consume(self.producer.topic, group, from_start=True) as consumer:
            await consumer.receive(**given)

    async def reject(self, given: dict[str, Any]) -> None:
        group = f"g{next(NUMBERS)}"
        async with await self.session.consume(self.producer.topic, group, from_start=True) as consumer:
            (message,) = await consumer.receive(1)
            message.reject(**given)

    async def receive_simply(self, given: dict[str, Any]) -> None:
        group = f"g{next(NUMBERS)}"
        async with await self.session.simple_consumer(self.producer.topic, group, from_start=True) as consumer:
            await consumer.receive(**given)

    async def hide(self, given: dict[str, Any]) -> None:
        group = f"g{next(NUMBERS)}"
        async with await self.session.simple_consumer(self.producer.topic, group, from_start=True) as consumer:
            (message, *_) = await consumer.receive(1)
            await message.hide(**given)

    async def send(self, given: dict[str, Any]) -> None:
        await (await self.producer.send(**given))

    async def batch_post(self, given: dict[str, Any]) -> None:
        async with self.producer.batch() as batch:
            await batch.post(**given)


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq") / "store", grpc_port=0) as node:
        yield node


CALLS_OF_ROCKETMQ = sorted({name.rpartition(".")[0] for name in ROCKETMQ})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", CALLS_OF_ROCKETMQ)
def test_arguments_of_rocketmqs_client(rocket: RocketProcess, name: str, backend: str) -> None:
    async def main() -> None:
        async with rocketmq.connect(f"rocketmq://{rocket.nameserver}", retry_s=5) as session:
            producer = await session.producer("arguments")
            await producer.post(b"x")
            world = Rocket(f"rocketmq://{rocket.nameserver}", session, producer)
            call, usual = world.calls[name]
            links = dict(session._cluster._links)
            for parameter, values in ROCKETMQ.items():
                if parameter.rpartition(".")[0] == name:
                    await check(call, usual, parameter.rpartition(".")[2], values, world.unharmed)
            # No connection was lost, which would have the program's messages sent twice.
            assert session._cluster._links == links
            assert all(link.is_open for link in links.values())

    anyio.run(main, backend=backend)


def test_a_message_is_sent_once_without_repetition(rocket: RocketProcess) -> None:
    async def main() -> None:
        async with rocketmq.connect(f"rocketmq://{rocket.nameserver}", retry_s=0) as session:
            producer = await session.producer("once")
            assert (await producer.post(b"x")).status == "SUCCESS"

    anyio.run(main)


@pytest.mark.parametrize("group", ["a b", "\u00fc", "x" * 130])
def test_the_reason_why_a_group_is_none_is_named(rocket: RocketProcess, group: str) -> None:
    async def main() -> None:
        async with rocketmq.connect(f"rocketmq://{rocket.nameserver}") as session:
            await (await session.producer("named")).post(b"x")
            with pytest.raises(ValueError, match=r"allowing only|longer than group max length: 120"):
                await session.consume("named", group, from_start=True)

    anyio.run(main)


def test_a_group_that_the_broker_does_not_make_ends_its_consumers(tmp_path: Any) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("autoCreateSubscriptionGroup=false\n")

    async def main(nameserver: str) -> None:
        async with rocketmq.connect(f"rocketmq://{nameserver}") as session, bounded():
            await (await session.producer("unmade")).post(b"x")
            consumer = await session.consume("unmade", "unmade", from_start=True)
            with pytest.raises(rocketmq.RequestRefused, match="SUBSCRIPTION_GROUP_NOT_EXIST"):
                await consumer.receive()

    with RocketProcess(tmp_path / "store", config_file=config, grpc_port=0) as node:
        anyio.run(main, node.nameserver)
