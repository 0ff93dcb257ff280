"""The session against a node of our own, and the official client at the other end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import blazingmq
import pytest
import trio

from bmqctl.client.protocol.events import StreamOptions
from bmqctl.client.protocol.message import Message
from bmqctl.client.session import Queue, RequestFailed, Session
from bmqctl.systems.node_process import NodeProcess
from formats.bmq.control.messages import StatusCategory
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property, PropertyType
from tests.waiting import WAIT_S

pytestmark = pytest.mark.trio

PRIORITY = "bmq://bmq.test.persistent.priority"
FANOUT = "bmq://bmq.test.mem.fanout"
PROPERTIES = [
    Property("flag", PropertyType.BOOL, True),
    Property("id", PropertyType.INT32, 7),
    Property("long", PropertyType.INT64, 1 << 40),
    Property("name", PropertyType.STRING, "näme"),
    Property("raw", PropertyType.BINARY, b"\0\1\xff"),
]
LARGE = b"lorem ipsum dolor sit amet " * 400


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "store") as node:
        yield node


async def take(queue: Queue, count: int) -> list[Message]:
    messages: list[Message] = []
    with trio.fail_after(WAIT_S):
        while len(messages) < count:
            messages += await queue.receive()
    return messages


async def test_properties_and_compression_survive(node: NodeProcess) -> None:
    async with Session.connect("127.0.0.1", node.port) as session:
        queue = await session.open_queue(f"{PRIORITY}/properties", read=True, write=True)
        for compress in (False, True):
            ack = await queue.post(LARGE, PROPERTIES, compress=compress)
            assert ack.status is AckStatus.SUCCESS
            (message,) = await take(queue, 1)
            assert message.guid == ack.guid
            assert message.payload == LARGE
            assert message.typed_properties == PROPERTIES
            queue.confirm(message)


async def test_each_app_of_a_fanout_gets_all(node: NodeProcess) -> None:
    async with Session.connect("127.0.0.1", node.port) as session:
        apps = {app: await session.open_queue(f"{FANOUT}/apps?id={app}", read=True) for app in ("foo", "bar")}
        producer = await session.open_queue(f"{FANOUT}/apps", write=True)
        for i in range(20):
            producer.post_nowait(b"%d" % i)
        for queue in apps.values():
            messages = await take(queue, 20)
            assert [m.payload for m in messages] == [b"%d" % i for i in range(20)]
            for message in messages:
                queue.confirm(message)
        await apps["foo"].close()
        # The queue's number lives on with the other app.
        await producer.post(b"last")
        assert [m.payload for m in await take(apps["bar"], 1)] == [b"last"]


async def test_unconfirmed_message_comes_again(node: NodeProcess) -> None:
    uri = f"{PRIORITY}/again"
    async with Session.connect("127.0.0.1", node.port) as session:
        queue = await session.open_queue(uri, read=True, write=True)
        for i in range(10):
            await queue.post(b"%d" % i)
        for message in (await take(queue, 10))[::2]:
            queue.confirm(message)
    async with Session.connect("127.0.0.1", node.port) as session:
        queue = await session.open_queue(uri, read=True)
        messages = await take(queue, 5)
        assert [m.payload for m in messages] == [b"1", b"3", b"5", b"7", b"9"]
        for message in messages:
            queue.confirm(message)


async def test_the_broker_keeps_to_the_bound_on_unconfirmed_messages(node: NodeProcess) -> None:
    async with Session.connect("127.0.0.1", node.port) as session:
        options = StreamOptions(max_unconfirmed_messages=3)
        queue = await session.open_queue(f"{PRIORITY}/bounded", read=True, write=True, options=options)
        for i in range(9):
            await queue.post(b"%d" % i)
        messages = await take(queue, 3)
        assert len(messages) == 3
        await queue.configure(StreamOptions(max_unconfirmed_messages=100))
        messages += await take(queue, 6)
        assert [m.payload for m in messages] == [b"%d" % i for i in range(9)]
        for message in messages:
            queue.confirm(message)


async def test_the_brokers_refusals_are_told(node: NodeProcess) -> None:
    async with Session.connect("127.0.0.1", node.port) as session:
        with pytest.raises(RequestFailed, match=r"cannot open bmq://bmq\.nowhere/q") as caught:
            await session.open_queue("bmq://bmq.nowhere/q", read=True)
        assert caught.value.status.category is not StatusCategory.SUCCESS
        # The session goes on.
        assert (await session.open_queue(f"{PRIORITY}/fine", write=True)).is_open


async def test_the_official_client_reads_what_we_post(node: NodeProcess) -> None:
    uri = f"{PRIORITY}/to-official"
    async with Session.connect("127.0.0.1", node.port) as session:
        queue = await session.open_queue(uri, write=True)
        await queue.post(b"plain")
        await queue.post(LARGE, PROPERTIES, compress=True)
    received: list[blazingmq.Message] = []
    done = threading.Event()

    def on_message(message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        received.append(message)
        handle.confirm()
        if len(received) == 2:
            done.set()

    def read() -> None:
        official = blazingmq.Session(
            lambda event: None, on_message=on_message, broker=f"tcp://127.0.0.1:{node.port}", host_health_monitor=None
        )
        try:
            official.open_queue(uri, read=True)
            assert done.wait(WAIT_S)
            official.close_queue(uri)
        finally:
            official.stop()

    await trio.to_thread.run_sync(read)
    plain, rich = received
    assert (plain.data, plain.properties) == (b"plain", {})
    assert rich.data == LARGE
    assert rich.properties == {each.name: each.value for each in PROPERTIES}
    assert rich.property_types["id"] is blazingmq.PropertyType.INT32


async def test_we_read_what_the_official_client_posts(node: NodeProcess) -> None:
    uri = f"{PRIORITY}/from-official"
    acked = threading.Event()

    def write() -> None:
        official = blazingmq.Session(
            lambda event: None,
            broker=f"tcp://127.0.0.1:{node.port}",
            message_compression_algorithm=blazingmq.CompressionAlgorithmType.ZLIB,
            host_health_monitor=None,
        )
        try:
            official.open_queue(uri, write=True)
            official.post(
                uri,
                LARGE,
                properties={each.name: each.value for each in PROPERTIES},
                property_type_overrides={"id": blazingmq.PropertyType.INT32},
                on_ack=lambda ack: acked.set(),
            )
            assert acked.wait(WAIT_S)
            official.close_queue(uri)
        finally:
            official.stop()

    await trio.to_thread.run_sync(write)
    async with Session.connect("127.0.0.1", node.port) as session:
        queue = await session.open_queue(uri, read=True)
        (message,) = await take(queue, 1)
        assert message.payload == LARGE
        assert message.typed_properties == PROPERTIES
        queue.confirm(message)
