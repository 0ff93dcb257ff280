from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
import trio.testing

from bmqctl.client.protocol.events import Ack, StreamOptions
from bmqctl.client.session import RequestFailed, Session, SessionLost, SessionOptions
from formats.bmq.control.messages import CloseQueue, ConfigureStream, Disconnect, OpenQueue, Status, StatusCategory
from formats.bmq.wire.ack import AckStatus
from tests.bmqctl.client.fakes import FakeBroker
from tests.bmqctl.client.serving import serving

pytestmark = pytest.mark.trio

URI = "bmq://bmq.test.mem.priority/orders"
TLS = Path(__file__).parents[2] / "rigs" / "tls"
REFUSAL = Status(category=StatusCategory.UNKNOWN, code=-1, message="no such domain")


async def test_a_message_goes_round() -> None:
    async with serving() as server:
        async with Session.connect("127.0.0.1", server.port) as session:
            queue = await session.open_queue(URI, read=True, write=True)
            ack = await queue.post(b"hello")
            assert ack.status is AckStatus.SUCCESS
            async for message in queue:
                assert (message.guid, message.payload) == (ack.guid, b"hello")
                queue.confirm(message)
                break
            await queue.close()
            assert server.broker.confirmed == [(0, ack.guid, 0)]
        kinds = [type(request) for request in server.broker.asked]
        assert kinds == [OpenQueue, ConfigureStream, ConfigureStream, CloseQueue, Disconnect]


async def test_iteration_ends_when_the_queue_is_closed() -> None:
    async with serving() as server, Session.connect("127.0.0.1", server.port) as session:
        queue = await session.open_queue(URI, read=True)
        ended = trio.Event()

        async def consume() -> None:
            async for _ in queue:
                raise AssertionError("nothing was posted")
            ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await trio.testing.wait_all_tasks_blocked()
            await queue.close()
            await ended.wait()
        assert not queue.is_open
        assert await queue.receive() == []


async def test_acks_of_messages_posted_without_waiting_come_with_their_correlation() -> None:
    acked: list[Ack] = []
    done = trio.Event()

    def on_acks(acks: list[Ack]) -> None:
        acked.extend(acks)
        if len(acked) == 100:
            done.set()

    async with serving() as server, Session.connect("127.0.0.1", server.port, on_acks=on_acks) as session:
        queue = await session.open_queue(URI, write=True)
        guids = [queue.post_nowait(b"x", correlation=i) for i in range(100)]
        await done.wait()
    assert [ack.correlation for ack in acked] == list(range(100))
    assert [ack.guid for ack in acked] == guids


async def test_several_tasks_post_at_once() -> None:
    async with serving() as server, Session.connect("127.0.0.1", server.port) as session:
        queue = await session.open_queue(URI, write=True)
        acks: list[Ack] = []

        async def post(payload: bytes) -> None:
            acks.append(await queue.post(payload))

        async with trio.open_nursery() as nursery:
            for i in range(20):
                nursery.start_soon(post, b"%d" % i)
        assert len({ack.guid for ack in acks}) == 20
        assert all(ack.correlation is None for ack in acks)


async def test_a_nack_is_an_answer_too() -> None:
    async with serving(FakeBroker(ack_status=1)) as server, Session.connect("127.0.0.1", server.port) as session:
        queue = await session.open_queue(URI, write=True)
        assert (await queue.post(b"x")).status is AckStatus.LIMIT_MESSAGES


async def test_a_refused_queue_raises_with_the_brokers_words() -> None:
    async with (
        serving(FakeBroker(refuse_queues=REFUSAL)) as server,
        Session.connect("127.0.0.1", server.port) as session,
    ):
        with pytest.raises(RequestFailed, match=r"cannot open .*: no such domain .UNKNOWN, code -1.") as caught:
            await session.open_queue(URI, read=True)
        assert caught.value.status == REFUSAL


async def test_a_queue_is_configured_anew() -> None:
    async with serving() as server, Session.connect("127.0.0.1", server.port) as session:
        queue = await session.open_queue(URI, read=True)
        await queue.configure(StreamOptions(priority=5))
        (subscription,) = server.broker.asked[-1].stream_parameters.subscriptions
        assert subscription.consumers[0].consumer_priority == 5


async def test_the_end_of_the_connection_reaches_whoever_waits() -> None:
    async with serving() as server, Session.connect("127.0.0.1", server.port) as session:
        queue = await session.open_queue(URI, read=True, write=True)
        lost: list[str] = []

        async def receive() -> None:
            with pytest.raises(SessionLost):
                await queue.receive()
            lost.append("receive")

        async def iterate() -> None:
            with pytest.raises(SessionLost):
                await anext(queue)
            lost.append("iterate")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            nursery.start_soon(iterate)
            await trio.testing.wait_all_tasks_blocked()
            await server.cut()
        assert sorted(lost) == ["iterate", "receive"]
        assert "closed the connection" in await session.lost()
        with pytest.raises(SessionLost, match="closed the connection"):
            queue.post_nowait(b"x")


async def test_a_post_is_not_left_waiting_by_a_lost_connection() -> None:
    async with serving() as server, Session.connect("127.0.0.1", server.port) as session:
        queue = await session.open_queue(URI, write=True)
        server.reading = trio.Event()

        async def post() -> None:
            with pytest.raises(SessionLost):
                await queue.post(b"x")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await trio.testing.wait_all_tasks_blocked()
            await server.cut()


async def test_posting_waits_while_the_broker_does_not_read() -> None:
    options = SessionOptions(high_watermark=1 << 20)
    async with serving() as server, Session.connect("127.0.0.1", server.port, options) as session:
        queue = await session.open_queue(URI, write=True)
        server.reading = trio.Event()
        posted = 0
        with trio.move_on_after(0.5) as scope:
            while posted < 1000:
                await session.drain()
                queue.post_nowait(bytes(1 << 18))
                posted += 1
        assert scope.cancelled_caught
        assert posted < 200
        assert session.machine.pending_size <= (1 << 20) + (1 << 19)
        server.reading.set()
        await session.drain()
        assert (await queue.post(b"last")).status is AckStatus.SUCCESS


async def test_a_broker_that_refuses_us() -> None:
    async with serving(FakeBroker(refusal=REFUSAL)) as server:
        with pytest.raises(SessionLost, match="no such domain"):
            async with Session.connect("127.0.0.1", server.port):
                raise AssertionError("never connected")


async def test_refused_connection_is_reported(unused_port: int) -> None:
    with pytest.raises(OSError, match="connect"):
        async with Session.connect("127.0.0.1", unused_port):
            raise AssertionError("never connected")


async def test_a_fault_of_the_program_comes_out_as_it_is() -> None:
    async with serving() as server:
        with pytest.raises(ZeroDivisionError):
            async with Session.connect("127.0.0.1", server.port):
                raise ZeroDivisionError


@pytest.fixture
def unused_port() -> int:
    from bmqctl.common.ports import free_port

    return free_port()


async def test_a_session_may_outlive_its_connection() -> None:
    async with serving() as server, Session.connect("127.0.0.1", server.port, SessionOptions(resume=True)) as session:
        queue = await session.open_queue(URI, read=True, write=True)
        assert (await queue.post(b"before")).status is AckStatus.SUCCESS
        await server.cut()
        ack = await queue.post(b"between")
        assert ack.status is AckStatus.SUCCESS
        assert [(await anext(queue)).payload for _ in range(2)] == [b"before", b"between"]
        await queue.configure(StreamOptions(7))
        await queue.close()
        with pytest.raises(StopAsyncIteration):
            await anext(queue)


async def test_a_session_that_is_to_resume_ends_while_nobody_listens() -> None:
    async with serving() as server:
        async with Session.connect("127.0.0.1", server.port, SessionOptions(resume=True)) as session:
            queue = await session.open_queue(URI, write=True)
            server.port = 0
            await server.cut()
            while queue.is_open:
                await trio.testing.wait_all_tasks_blocked()
        assert await session.lost() == "disconnected"


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_broker_is_known_by_its_certificate(trusted: bool) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "broker.pem", TLS / "broker.key")
    authority = TLS / "authority.pem"
    async with serving(tls=context) as server:
        if trusted:
            async with Session.connect("localhost", server.port, SessionOptions(tls_authority=authority)) as session:
                queue = await session.open_queue(URI, read=True, write=True)
                assert (await queue.post(bytes(500_000))).status is AckStatus.SUCCESS
                assert len((await anext(queue)).payload) == 500_000
        else:
            with pytest.raises(OSError, match=r"127\.0\.0\.2:\d+ failed: no TLS: "):
                async with Session.connect("127.0.0.2", server.port, SessionOptions(tls_authority=authority)):
                    pass
