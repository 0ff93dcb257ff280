"""The client library against a fake broker, under asyncio and trio."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import bmqctl.client
from bmqctl.client import (
    AckStatus,
    BatchFailed,
    Change,
    ClientError,
    ConnectFailed,
    Message,
    PostRefused,
    PostUncertain,
    QueueClosed,
    QueueSuspended,
    RequestRefused,
    SessionEnded,
    Subscription,
    carrier,
    connect,
)
from formats.bmq.codes import EventType
from formats.bmq.control.messages import CloseQueue, ConfigureStream, Disconnect, OpenQueue, Status, StatusCategory
from formats.bmq.wire.event import build_event
from formats.bmq.wire.options import SubQueueInfo, pack_sub_queue_infos
from formats.bmq.wire.push import append_push_with_options
from tests.bmqctl.client.fakes import FakeBroker
from tests.bmqctl.client.library_serving import Server, serving
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio

URI = "bmq://bmq.test.mem.priority/orders"
GUID = bytes(15) + b"\7"
REFUSAL = Status(category=StatusCategory.REFUSED, code=-1, message="no such domain")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a lost connection replaced soon: no test is about the length of the pause."""
    monkeypatch.setattr(carrier, "RECONNECT_S", 0.01)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for what another task of this process does."""
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.sleep(0.002)


async def until_posted(broker: FakeBroker, count: int) -> None:
    await until(lambda: len(broker.posted) == count)


def test_every_public_name_leads_to_an_object() -> None:
    for name in bmqctl.client.__all__:
        assert getattr(bmqctl.client, name).__module__.startswith(("bmqctl.", "formats."))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bmqctl.client.no_such_name


async def test_a_message_goes_round() -> None:
    async with serving() as server:
        async with connect(server.uri) as session:
            queue = await session.open(URI, read=True, write=True)
            ack = await queue.post(b"hello")
            assert ack.status is AckStatus.SUCCESS
            async for message in queue:
                async with message:
                    assert (message.guid, message.payload) == (ack.guid, b"hello")
                assert message.is_settled
                break
            await queue.close()
            assert server.broker.confirmed == [(0, ack.guid, 0)]
        kinds = [type(request) for request in server.broker.asked]
        assert kinds == [OpenQueue, ConfigureStream, ConfigureStream, CloseQueue, Disconnect]


async def test_a_message_whose_block_raises_is_not_confirmed() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True, write=True)
        await queue.post(b"poison")
        message = await anext(queue)
        with pytest.raises(ZeroDivisionError):
            async with message:
                _ = 1 // 0
        assert message.is_settled
        message.confirm()
        await queue.post(b"a later message, with which a confirm would have come")
        assert server.broker.confirmed == []


async def test_confirms_are_sent_when_the_block_raises() -> None:
    async with serving() as server:

        async def confirm_and_fail() -> None:
            async with connect(server.uri) as session:
                queue = await session.open(URI, read=True, write=True)
                await queue.post(b"hello")
                (await anext(queue)).confirm()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await confirm_and_fail()
        assert len(server.broker.confirmed) == 1
        assert isinstance(server.broker.asked[-1], Disconnect)


async def test_iteration_ends_when_the_queue_is_closed() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True)
        ended = anyio.Event()

        async def consume() -> None:
            async for _ in queue:
                raise AssertionError("nothing was posted")
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await anyio.wait_all_tasks_blocked()
            await queue.close()
            await ended.wait()
        assert queue.is_closed
        assert await queue.receive() == []
        await queue.close()


async def test_an_ack_may_be_awaited_later_and_more_than_once() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        posted = [await queue.send(b"%d" % number) for number in range(10)]
        for each in posted:
            assert (await each).guid == each.guid
            assert await each == each.ack
        assert [data for _, data in server.broker.posted] == [b"%d" % number for number in range(10)]


async def test_a_refused_post_raises_with_its_reason() -> None:
    broker = FakeBroker(ack_status=AckStatus.LIMIT_MESSAGES.value)
    async with serving(broker) as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        with pytest.raises(PostRefused, match="LIMIT_MESSAGES") as caught:
            await queue.post(b"hello")
        assert caught.value.ack.status is AckStatus.LIMIT_MESSAGES


async def test_a_refusal_that_nobody_awaits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker(ack_status=AckStatus.LIMIT_BYTES.value)
    async with serving(broker) as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        await queue.send(b"hello")
        await session.flush()
        assert "LIMIT_BYTES" in caplog.text


async def test_a_batch_tells_what_was_refused() -> None:
    broker = FakeBroker(ack_status=AckStatus.LIMIT_MESSAGES.value)
    async with serving(broker) as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        with pytest.raises(BatchFailed, match=r"2 of 2 .*LIMIT_MESSAGES") as caught:
            async with queue.batch() as batch:
                guids = [await batch.post(b"a"), await batch.post(b"b", {"kind": "b"})]
        assert [ack.guid for ack in caught.value.failures] == guids


async def test_a_batch_may_be_larger_than_the_window() -> None:
    async with serving() as server, connect(server.uri, window=10) as session:
        queue = await session.open(URI, write=True)
        async with queue.batch() as batch:
            for number in range(500):
                await batch.post(b"%d" % number)
                assert session.machine.unanswered <= 10
        assert (batch.posted, batch.acked) == (500, 500)
        assert await queue.post_all(b"%d" % number for number in range(500, 1000)) == 500
        assert [data for _, data in server.broker.posted] == [b"%d" % number for number in range(1000)]


async def test_posts_that_wait_for_room_are_called_in_the_order_of_their_coming() -> None:
    broker = FakeBroker(mute_puts=True)
    async with serving(broker) as server, connect(server.uri, window=2) as session:
        queue = await session.open(URI, write=True)

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(queue.post, b"%d" % number)
                await anyio.wait_all_tasks_blocked()
            for count in (2, 4, 6):
                await until_posted(broker, count)
                await server.send(broker.ack(0, [guid for guid, _ in broker.posted[-2:]]))
        # Trio runs the tasks that are called at the same time in any order.
        posted = [data for _, data in broker.posted]
        assert [sorted(posted[at : at + 2]) for at in (0, 2, 4)] == [[b"0", b"1"], [b"2", b"3"], [b"4", b"5"]]


async def test_a_task_that_is_cancelled_or_refused_gives_its_turn_to_the_next() -> None:
    broker = FakeBroker(mute_puts=True)
    async with serving(broker) as server, connect(server.uri, window=1) as session:
        queue = await session.open(URI, write=True)

        async def too_large() -> None:
            with pytest.raises(ValueError, match="the limit is"):
                await queue.post(bytes(100 << 20))

        async with anyio.create_task_group() as group:
            group.start_soon(queue.post, b"first")
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0.01):
                await queue.post(b"never")
            group.start_soon(too_large)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(queue.post, b"second")
            await anyio.wait_all_tasks_blocked()
            for count in (1, 2):
                await until_posted(broker, count)
                await server.send(broker.ack(0, [broker.posted[-1][0]]))
        assert [data for _, data in broker.posted] == [b"first", b"second"]


async def test_a_post_waits_while_the_socket_takes_nothing() -> None:
    async with serving() as server, connect(server.uri, buffer_size=1 << 20) as session:
        queue = await session.open(URI, write=True)
        server.reading = anyio.Event()
        await queue.send(bytes(1 << 20))
        posted = 1
        with anyio.move_on_after(1.0):
            while posted < 64:
                await queue.send(bytes(1 << 20))
                posted += 1
        assert posted < 64
        assert session.carrier.pending_size <= 3 << 20
        server.reading.set()


async def test_a_post_that_the_socket_does_not_take_at_once_arrives_whole() -> None:
    payload = bytes(range(256)) * (32 << 10)
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        for data in (b"before", payload, b"after"):
            await queue.post(data)
        assert [data for _, data in server.broker.posted] == [b"before", payload, b"after"]


async def test_messages_are_confirmed_together() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True, write=True)
        async with queue.batch() as batch:
            guids = [await batch.post(b"%d" % number) for number in range(5000)]
        messages: list[Message] = []
        while len(messages) < 5000:
            messages += await queue.receive()
        messages[1].reject()
        queue.confirm_all(messages)
        queue.confirm_all(messages)
        assert all(message.is_settled for message in messages)
        await queue.post(b"after")
        del guids[1]
        assert server.broker.confirmed == [(0, guid, 0) for guid in guids]


async def test_messages_of_two_connections_are_confirmed_together() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True)
        await push(server, GUID, b"old")
        messages = [await anext(queue)]
        await server.cut()
        await until(lambda: not session.is_connected)
        await session.wait_connected()
        await push(server, GUID[:-1] + b"\x09", b"new")
        messages.append(await anext(queue))
        queue.confirm_all(messages)
        await push(server, GUID, b"old")
        await until(lambda: len(server.broker.confirmed) == 2)
        assert server.broker.confirmed == [(0, GUID[:-1] + b"\x09", 0), (0, GUID, 0)]
        await queue.close()
        with pytest.raises(QueueClosed):
            queue.confirm_all([_unsettled(messages[0])])


def _unsettled(message: Message) -> Message:
    message.is_settled = False
    return message


async def test_leaving_the_block_waits_for_the_acks() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        posted = await queue.send(b"hello")
    assert posted.ack is not None
    assert posted.ack.status is AckStatus.SUCCESS


async def test_closing_a_queue_waits_for_its_acks() -> None:
    async with serving() as server, connect(server.uri) as session:
        async with await session.open(URI, write=True) as queue:
            posted = await queue.send(b"hello")
        assert queue.is_closed
        assert (await posted).status is AckStatus.SUCCESS


async def test_payloads_of_other_types_are_copied() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)
        payload = bytearray(b"hello")
        posted = await queue.send(memoryview(payload))
        payload[:] = b"other"
        await posted
        assert [data for _, data in server.broker.posted] == [b"hello"]
        with pytest.raises(TypeError):
            await queue.post("text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="the payload is empty"):
            await queue.post(b"")


async def test_where_nobody_listens_connecting_fails() -> None:
    async with serving() as server:
        uri = server.uri
    with pytest.raises(ConnectFailed, match=r"^no connection to 127\.0\.0\.1:\d+: Connection refused$"):
        async with connect(uri):
            raise AssertionError("connected")
    with pytest.raises(ValueError, match="expected tcp"):
        async with connect("http://127.0.0.1:1"):
            raise AssertionError("connected")


async def test_a_session_that_is_refused_is_not_tried_again() -> None:
    async with serving(FakeBroker(refusal=REFUSAL)) as server:
        with pytest.raises(ConnectFailed, match="the broker refused us: no such domain"):
            async with connect(server.uri):
                raise AssertionError("connected")
        assert len(server.streams) == 1


async def test_a_queue_that_is_refused_leaves_the_session_usable() -> None:
    broker = FakeBroker(refuse_queues=REFUSAL)
    async with serving(broker) as server, connect(server.uri) as session:
        with pytest.raises(RequestRefused, match=r"cannot open .*no such domain") as caught:
            await session.open(URI, read=True)
        assert caught.value.status == REFUSAL
        broker.refuse_queues = None
        queue = await session.open(URI, read=True)
        with pytest.raises(ValueError, match="already open"):
            await session.open(URI, read=True)
        with pytest.raises(QueueClosed, match="not open for writing"):
            await queue.post(b"hello")
        with pytest.raises(ValueError, match="neither"):
            await session.open(f"{URI}-2")


async def test_a_queue_whose_opening_is_cancelled_is_closed() -> None:
    broker = FakeBroker()
    async with serving(broker) as server, connect(server.uri) as session:
        server.reading = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(partial(session.open, URI, read=True))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        server.reading.set()
        await until(lambda: any(isinstance(request, CloseQueue) for request in broker.asked))
        await until(lambda: not session._queues)
        assert (await session.open(URI, read=True, write=True)).uri == URI


async def test_subscriptions_and_limits_are_sent() -> None:
    async with serving() as server, connect(server.uri) as session:
        even = Subscription("kind == 1", correlation="even", priority=2)
        queue = await session.open(URI, read=True, write=True, max_unconfirmed_messages=7, subscriptions=[even])
        await queue.post(b"hello", {"kind": 1})
        message = await anext(queue)
        matched = message.subscription
        assert matched is even
        assert message.properties == {"kind": 1}
        await queue.configure(priority=3, subscriptions=[])
        assert message.subscription is None
        (first, second) = [each for each in server.broker.asked if isinstance(each, ConfigureStream)]
        (subscription,) = first.stream_parameters.subscriptions
        assert subscription.expression.text == "kind == 1"
        assert subscription.consumers[0].consumer_priority == 2
        assert subscription.consumers[0].max_unconfirmed_messages == 7
        (subscription,) = second.stream_parameters.subscriptions
        assert subscription.expression.text == ""
        assert subscription.consumers[0].consumer_priority == 3
        assert subscription.consumers[0].max_unconfirmed_messages == 7


async def test_each_message_of_an_event_goes_to_the_queues_that_it_is_for() -> None:
    async with serving() as server, connect(server.uri) as session:
        queues = [await session.open(f"{URI}-{number}", read=True) for number in range(2)]
        one, two = (server.broker.consumers[number] for number in range(2))
        body = bytearray()
        for number, ids in enumerate([[one], [one, two], [one], [two], [99], [two], [one], [99], [one]]):
            options = pack_sub_queue_infos([SubQueueInfo(each, 1) for each in ids])
            append_push_with_options(body, 0, bytes(15) + bytes([number]), options, b"%d" % number, 0, 0, 0)
        await server.send(build_event(EventType.PUSH, body))
        received = [[message.payload for message in await queue.receive()] for queue in queues]
        assert received == [[b"0", b"1", b"2", b"6", b"8"], [b"1", b"3", b"5"]]


async def test_messages_come_in_lists_of_bounded_size() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True, write=True)
        await queue.post_all(b"%d" % number for number in range(100))
        received: list[bytes] = []
        while len(received) < 100:
            messages = await queue.receive(30)
            assert 1 <= len(messages) <= 30
            received += [message.payload for message in messages]
        assert received == [b"%d" % number for number in range(100)]


async def test_unacknowledged_post_is_sent_again_on_the_next_connection() -> None:
    changes: list[Change] = []
    broker = FakeBroker(mute_puts=True)
    async with serving(broker) as server, connect(server.uri, on_change=changes.append) as session:
        queue = await session.open(URI, write=True)
        first = await queue.send(b"first")
        await until(lambda: len(broker.posted) == 1)
        broker.mute_puts = False
        await server.cut()
        await until(lambda: not session.is_connected)
        second = await queue.send(b"second")
        assert (await first).status is AckStatus.SUCCESS
        assert (await second).status is AckStatus.SUCCESS
        assert broker.posted == [(first.guid, b"first"), (first.guid, b"first"), (second.guid, b"second")]
        await session.wait_connected()
        assert changes == [Change.LOST, Change.RECONNECTED, Change.RESTORED]


async def test_error_of_on_change_ends_the_session() -> None:
    def refuse(change: Change) -> None:
        raise RuntimeError(f"mine: {change.name}")

    async with serving() as server:

        async def hold_a_session() -> None:
            async with connect(server.uri, on_change=refuse) as session:
                await session.open(URI, write=True)
                await server.cut()
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as caught:
            await hold_a_session()
    fault: BaseException = caught.value
    while isinstance(fault, BaseExceptionGroup):
        (fault,) = fault.exceptions
    assert (type(fault), str(fault)) == (RuntimeError, "mine: LOST")


async def test_without_reconnecting_the_session_ends_with_its_connection() -> None:
    broker = FakeBroker(mute_puts=True)
    async with serving(broker) as server:
        async with connect(server.uri, reconnect=False) as session:
            queue = await session.open(URI, read=True, write=True)
            posted = await queue.send(b"hello")
            await until(lambda: broker.posted)
            await server.cut()
            with pytest.raises(PostUncertain):
                await posted
            assert await session.wait_ended() == "the broker closed the connection"
            with pytest.raises(SessionEnded, match="the broker closed the connection"):
                await queue.post(b"hello")
            with pytest.raises(SessionEnded, match="the broker closed the connection"):
                await anext(queue)
        assert len(server.streams) == 1


async def push(server: Server, guid: bytes, data: bytes) -> None:
    await server.send(server.broker.push(0, server.broker.consumers[0], guid, data))


async def test_a_confirm_without_a_connection_is_sent_when_the_message_comes_again() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True)
        await push(server, GUID, b"in hand")
        await push(server, GUID[:-1] + b"\x09", b"in the buffer")
        in_hand = await anext(queue)
        await until(lambda: queue._buffer)
        await server.cut()
        await until(lambda: not session.is_connected)
        in_hand.confirm()
        await session.wait_connected()
        assert server.broker.confirmed == []
        await push(server, GUID, b"in hand")
        await push(server, GUID[:-1] + b"\x09", b"in the buffer")
        assert (await anext(queue)).payload == b"in the buffer"
        await until(lambda: server.broker.confirmed)
        assert server.broker.confirmed == [(0, GUID, 0)]


async def test_a_confirm_after_the_message_came_again_takes_it_out_of_the_buffer() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True)
        await push(server, GUID, b"in hand")
        in_hand = await anext(queue)
        await server.cut()
        await until(lambda: not session.is_connected)
        await session.wait_connected()
        await push(server, GUID, b"in hand")
        await until(lambda: queue._buffer)
        in_hand.confirm()
        assert not queue._buffer
        await until(lambda: server.broker.confirmed)
        assert server.broker.confirmed == [(0, GUID, 0)]


async def test_a_queue_that_is_not_opened_again_says_so() -> None:
    broker = FakeBroker()
    async with serving(broker) as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True, write=True)
        broker.refuse_queues = REFUSAL
        await server.cut()
        with pytest.raises(QueueClosed, match=r"did not open .* again: no such domain"):
            await anext(queue)
        with pytest.raises(QueueClosed, match=r"did not open .* again: no such domain"):
            await queue.post(b"hello")
        assert session.is_connected


async def test_a_cancelled_block_ends_the_session_properly() -> None:
    async with serving() as server:
        with anyio.CancelScope() as scope:
            async with connect(server.uri) as session:
                queue = await session.open(URI, read=True, write=True)
                await queue.post(b"hello")
                (await anext(queue)).confirm()
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert len(server.broker.confirmed) == 1
        assert isinstance(server.broker.asked[-1], Disconnect)


async def test_every_error_of_the_library_has_one_base() -> None:
    for error in (BatchFailed, ConnectFailed, PostRefused, PostUncertain, QueueClosed, QueueSuspended, RequestRefused):
        assert issubclass(error, ClientError)


async def test_a_busy_poster_leaves_others_their_turns() -> None:
    turns = 0
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, write=True)

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(count)
            await queue.post_all([b"x"] * 2000)
            group.cancel_scope.cancel()
    assert turns >= 2000 // 128
    assert EventType.PUT in server.broker.heard


def streams(broker: FakeBroker) -> list[int]:
    """Return the number of subscriptions of each request for a stream."""
    return [len(each.stream_parameters.subscriptions) for each in broker.asked if isinstance(each, ConfigureStream)]


async def test_queues_are_suspended_while_the_host_is_not_healthy() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True, write=True, suspends_on_bad_host_health=True)
        other = await session.open(f"{URI}-other", read=True, write=True)
        await queue.post(b"before")
        message = await anext(queue)
        await session.set_host_health(False)
        assert (queue.is_suspended, other.is_suspended) == (True, False)
        with pytest.raises(QueueSuspended, match="not healthy"):
            await queue.post(b"refused")
        message.confirm()
        await other.post(b"other")
        await session.set_host_health(False)
        await queue.configure(priority=1)
        assert streams(server.broker) == [1, 1, 0, 0]
        later = await session.open(f"{URI}-later", read=True, suspends_on_bad_host_health=True)
        assert later.is_suspended
        await session.set_host_health(True)
        assert [queue.is_suspended, later.is_suspended] == [False, False]
        await queue.post(b"after")
        assert (await anext(queue)).payload == b"after"
        assert streams(server.broker) == [1, 1, 0, 0, 0, 1, 1]
        assert server.broker.confirmed == [(0, message.guid, 0)]


async def test_a_queue_stays_suspended_over_a_reconnection() -> None:
    async with serving() as server, connect(server.uri) as session:
        queue = await session.open(URI, read=True, suspends_on_bad_host_health=True)
        await session.set_host_health(False)
        await server.cut()
        await until(lambda: not session.is_connected)
        await session.wait_connected()
        assert queue.is_suspended
        await session.set_host_health(True)
        assert streams(server.broker) == [1, 0, 0, 1]
