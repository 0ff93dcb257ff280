"""The client library against real brokers, under asyncio and trio, with the official client at the other end.

The brokers are ours, or BlazingMQ's own: see `library_broker`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from bmqctl.client import (
    AckStatus,
    BatchFailed,
    Change,
    ConnectFailed,
    PostRefused,
    Property,
    PropertyType,
    Queue,
    RequestRefused,
    Subscription,
    connect,
)
from bmqctl.testing import NodeProcess, free_port
from scripts.judges.reference_process import Running
from tests.rigs.config_files import spoil, write_config
from tests.rigs.library_broker import ORDERS, ORDERS_MAX, REFERENCE, library_broker
from tests.rigs.official import Client
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio

PRIORITY = "bmq://bmq.test.persistent.priority"
PERSISTENT_FANOUT = "bmq://bmq.test.persistent.fanout"
FANOUT = "bmq://bmq.test.mem.fanout"
TLS = Path(__file__).parents[2] / "rigs" / "tls"
PROPERTIES = [
    Property("flag", PropertyType.BOOL, True),
    Property("id", PropertyType.INT32, 7),
    Property("long", PropertyType.INT64, 1 << 40),
    Property("name", PropertyType.STRING, "näme"),
    Property("raw", PropertyType.BINARY, b"\0\1\xff"),
]
LARGE = b"lorem ipsum dolor sit amet " * 400

only_ours = pytest.mark.skipif(REFERENCE is not None, reason="a C++ broker built without OpenSSL has no TLS")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A broker that the tests of this module share: each uses queues of its own, and does the broker no harm."""
    with library_broker(tmp_path_factory.mktemp("node")) as running:
        yield running


async def take(queue: Queue, count: int) -> list[bytes]:
    """Confirm `count` messages and return their payloads."""
    payloads: list[bytes] = []
    with anyio.fail_after(WAIT_S):
        while len(payloads) < count:
            async with await anext(queue) as message:
                payloads.append(message.payload)
    return payloads


async def test_properties_and_compression_survive(node: Running, anyio_backend_name: str) -> None:
    async with connect(node.uri) as session:
        queue = await session.open(f"{PRIORITY}/library-{anyio_backend_name}", read=True, write=True)
        for compress in (False, True):
            ack = await queue.post(LARGE, PROPERTIES, compress=compress)
            async with await anext(queue) as message:
                assert message.guid == ack.guid
                assert message.payload == LARGE
                assert message.typed_properties == PROPERTIES
                assert message.properties["name"] == "näme"


async def test_rejected_message_comes_to_the_next_consumer(node: Running, anyio_backend_name: str) -> None:
    uri = f"{PRIORITY}/library-again-{anyio_backend_name}"
    async with connect(node.uri) as session:
        queue = await session.open(uri, read=True, write=True)
        await queue.post_all(b"%d" % number for number in range(10))
        for number in range(10):
            message = await anext(queue)
            if number % 2:
                message.reject()
            else:
                message.confirm()
        await queue.close()
        queue = await session.open(uri, read=True)
        assert await take(queue, 5) == [b"1", b"3", b"5", b"7", b"9"]


async def test_each_app_of_a_fanout_gets_all(node: Running, anyio_backend_name: str) -> None:
    uri = f"{FANOUT}/library-{anyio_backend_name}"
    async with connect(node.uri) as session:
        foo, bar = [await session.open(f"{uri}?id={app}", read=True) for app in ("foo", "bar")]
        producer = await session.open(uri, write=True)
        payloads = [b"%d" % number for number in range(20)]
        await producer.post_all(payloads)
        assert await take(foo, 20) == payloads
        assert await take(bar, 20) == payloads


async def test_subscriptions_divide_a_queue(node: Running, anyio_backend_name: str) -> None:
    uri = f"{PRIORITY}/library-subscriptions-{anyio_backend_name}"
    wanted = [Subscription("size > 10", correlation="large"), Subscription("size <= 10", correlation="small")]
    async with connect(node.uri) as session:
        queue = await session.open(uri, read=True, write=True, subscriptions=wanted)
        async with queue.batch() as batch:
            for size in (5, 50, 10, 11):
                await batch.post(b"%d" % size, {"size": size})
        found = {}
        for _ in range(4):
            async with await anext(queue) as message:
                assert message.subscription is not None
                found[message.payload] = message.subscription.correlation
        assert found == {b"5": "small", b"50": "large", b"10": "small", b"11": "large"}
        for request in (queue.configure, partial(session.open, f"{uri}-2", read=True)):
            with pytest.raises(ValueError, match="syntax error"):
                await request(subscriptions=[Subscription("size >")])


async def test_a_batch_larger_than_the_window_waits_for_acks(node: Running, anyio_backend_name: str) -> None:
    payloads = [b"%d" % number for number in range(1000)]
    async with connect(node.uri, window=50) as session:
        queue = await session.open(f"{PRIORITY}/library-window-{anyio_backend_name}", read=True, write=True)
        async with queue.batch() as batch:
            for payload in payloads:
                await batch.post(payload)
                assert session.machine.unanswered <= 50
        assert (batch.posted, batch.acked) == (1000, 1000)
        assert await take(queue, 1000) == payloads


async def test_a_suspended_queue_gets_its_messages_when_the_host_is_healthy(
    node: Running, anyio_backend_name: str
) -> None:
    uri = f"{PRIORITY}/library-health-{anyio_backend_name}"
    async with connect(node.uri) as session, connect(node.uri) as other:
        queue = await session.open(uri, read=True, suspends_on_bad_host_health=True)
        producer = await other.open(uri, write=True)
        await session.set_host_health(False)
        await producer.post_all(b"%d" % number for number in range(10))
        # A queue of the same session gets its message, so those of the suspended one would have come before.
        barrier = await session.open(f"{uri}-barrier", read=True, write=True)
        await barrier.post(b"barrier")
        assert await take(barrier, 1) == [b"barrier"]
        assert not queue._buffer
        await session.set_host_health(True)
        assert await take(queue, 10) == [b"%d" % number for number in range(10)]


async def test_refusals_are_raised(node: Running) -> None:
    async with connect(node.uri) as session:
        with pytest.raises(RequestRefused, match=r"cannot open bmq://bmq\.nowhere/q"):
            await session.open("bmq://bmq.nowhere/q", read=True)
        assert not (await session.open(f"{PRIORITY}/fine", write=True)).is_closed


async def test_a_full_queue_refuses_posts(node: Running, anyio_backend_name: str) -> None:
    async with connect(node.uri) as session:
        queue = await session.open(f"bmq://{ORDERS}/full-{anyio_backend_name}", read=True, write=True)
        with pytest.raises(BatchFailed, match="LIMIT_MESSAGES"):
            await queue.post_all([b"x"] * (ORDERS_MAX + 3))
        with pytest.raises(PostRefused) as caught:
            await queue.post(b"y")
        assert caught.value.ack.status is AckStatus.LIMIT_MESSAGES
        assert await take(queue, ORDERS_MAX) == [b"x"] * ORDERS_MAX
        # The confirms were written before this post.
        await queue.post(b"y")


async def test_messages_go_both_ways_with_the_official_client(node: Running, anyio_backend_name: str) -> None:
    ours, theirs = (f"{PRIORITY}/library-{name}-{anyio_backend_name}" for name in ("ours", "theirs"))
    async with connect(node.uri) as session:
        with Client(node.uri) as official:
            queue = await session.open(ours, write=True)
            await queue.post(LARGE, PROPERTIES, compress=True)
            official.open(ours, read=True)
            ((message, handle),) = official.wait_for_messages(1)
            assert message.data == LARGE
            assert message.properties == {each.name: each.value for each in PROPERTIES}
            handle.confirm()
            official.open(theirs, write=True)
            official.session.post(theirs, b"from them", properties={"id": 7})
            queue = await session.open(theirs, read=True)
            async with await anext(queue) as received:
                assert (received.payload, received.properties) == (b"from them", {"id": 7})


async def test_nothing_acknowledged_is_lost_when_the_node_is_killed(tmp_path: Path) -> None:
    acked: set[bytes] = set()
    received: set[bytes] = set()
    changes: list[Change] = []
    total = 3000

    with library_broker(tmp_path) as node:
        async with (
            connect(node.uri, window=100, on_change=changes.append) as producing,
            connect(node.uri) as consuming,
        ):
            producer = await producing.open(f"{PRIORITY}/killed", write=True)
            consumer = await consuming.open(f"{PRIORITY}/killed", read=True)
            third = anyio.Event()

            async def post(worker: int) -> None:
                for number in range(worker, total, 50):
                    payload = b"%d" % number
                    await producer.post(payload)
                    acked.add(payload)
                    if len(acked) >= total // 3:
                        third.set()

            async def consume() -> None:
                async for message in consumer:
                    async with message:
                        received.add(message.payload)
                    if len(received) == total:
                        return

            with anyio.fail_after(WAIT_S):
                async with anyio.create_task_group() as group:
                    group.start_soon(consume)
                    for worker in range(50):
                        group.start_soon(post, worker)
                    await third.wait()
                    await anyio.to_thread.run_sync(node.kill)
                    await anyio.to_thread.run_sync(node.start)
            assert len(acked) == total
            assert received == acked
            assert changes == [Change.LOST, Change.RECONNECTED, Change.RESTORED]


async def test_the_queues_of_a_session_are_as_before_when_the_node_was_killed(tmp_path: Path) -> None:
    large = Subscription("size > 10", correlation="large")
    with library_broker(tmp_path) as node:
        async with connect(node.uri, timeout_s=WAIT_S) as session:
            chosen = await session.open(f"{PRIORITY}/chosen", read=True, write=True, subscriptions=[large])
            fanout = await session.open(f"{PERSISTENT_FANOUT}/apps", write=True)
            foo = await session.open(f"{PERSISTENT_FANOUT}/apps?id=foo", read=True)
            idle = await session.open(f"{PRIORITY}/idle", read=True, suspends_on_bad_host_health=True)
            await session.set_host_health(False)
            await fanout.post(b"before")
            in_hand = await anext(foo)
            await anyio.to_thread.run_sync(node.kill)
            await anyio.to_thread.run_sync(node.start)
            await fanout.post(b"after")
            in_hand.confirm()
            assert await take(foo, 1) == [b"after"]
            async with connect(node.uri) as other:
                await (await other.open(f"{PRIORITY}/idle", write=True)).post(b"for a healthy host")
            # These come later than the message of the suspended queue would.
            for size in (5, 50):
                await chosen.post(b"%d" % size, {"size": size})
            with anyio.fail_after(WAIT_S):
                message = await anext(chosen)
            assert (message.payload, message.subscription) == (b"50", large)
            assert not idle._buffer
            await session.set_host_health(True)
            assert await take(idle, 1) == [b"for a healthy host"]


def secured(folder: Path, port: int) -> Path:
    """Files of a configuration with one listener, for TLS."""
    config = write_config(folder / "etc")
    settings = {
        "certificateAuthority": str(TLS / "authority.pem"),
        "certificate": str(TLS / "broker.pem"),
        "key": str(TLS / "broker.key"),
        "versions": "TLSv1.3",
    }
    listener = {"name": "secure", "address": "127.0.0.1", "port": port, "tls": True}
    spoil(config, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=settings)
    spoil(config, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", "tcpInterface", "listeners", value=[listener])
    endpoint = ("myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint")
    spoil(config, "clusters.json", *endpoint, value=f"tcp://localhost:{port}")
    return config


@pytest.fixture(scope="module")
def secure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("secure")
    port = free_port()
    with NodeProcess(folder / "store", config_dir=secured(folder, port), port=port) as running:
        yield running


@only_ours
async def test_tls_with_the_right_authority(secure_node: NodeProcess) -> None:
    uri = f"tcp://localhost:{secure_node.port}"
    async with connect(uri, tls=TLS / "authority.pem") as session:
        queue = await session.open("bmq://bmq.test.mem.priority/secure", read=True, write=True)
        assert await queue.post_all([LARGE] * 100) == 100
        assert await take(queue, 100) == [LARGE] * 100


@only_ours
async def test_tls_with_another_authority(secure_node: NodeProcess) -> None:
    with pytest.raises(ConnectFailed, match="certificate verify failed"):
        async with connect(f"tcp://localhost:{secure_node.port}", tls=ssl.create_default_context()):
            raise AssertionError("connected")


@pytest.fixture(scope="module")
def guarded_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with library_broker(tmp_path_factory.mktemp("guarded"), password="x") as running:
        yield running


async def test_credentials_are_sent(guarded_node: Running, anyio_backend_name: str) -> None:
    async with connect(guarded_node.uri, credentials=("BASIC", b"shop:x")) as session:
        queue = await session.open(f"bmq://{ORDERS}/guarded-{anyio_backend_name}", write=True)
        assert (await queue.post(b"hello")).status is AckStatus.SUCCESS


async def test_wrong_credentials_are_refused(guarded_node: Running) -> None:
    with pytest.raises(ConnectFailed, match="the broker refused our credentials"):
        async with connect(guarded_node.uri, credentials=("BASIC", b"shop:y")):
            raise AssertionError("connected")
