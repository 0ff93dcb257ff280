"""A client of a cluster: what it does about a nameserver's answers, and about connections that are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from bmqctl.client.remoting.client import QUEUES_MAX, Client
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, BrokerData, QueueData, TopicRoute
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame, next_frame
from tests.waiting import WAIT_S


def route(queues: int, address: str = "127.0.0.1:1") -> bytes:
    brokers = [BrokerData("cluster", "broker", {0: address})]
    return TOPIC_ROUTE.write(TopicRoute(brokers, [QueueData("broker", queues, queues, 6, 0)]))


async def serve(stream: trio.SocketStream, body: Callable[[], bytes]) -> None:
    """Answer every request of a connection with a body."""
    held = b""
    async with stream:
        async for data in stream:
            held += bytes(data)
            while (found := next_frame(memoryview(held), 0, len(held))) is not None:
                request, end = found
                held = held[end:]
                answer = Frame(ResponseCode.SUCCESS, request.opaque, FrameFlag.RESPONSE, body=body())
                await stream.send_all(encode_frame(answer))


def test_number_of_queues_is_not_believed_without_limit() -> None:
    trio.run(_number_of_queues_is_not_believed_without_limit)


async def _number_of_queues_is_not_believed_without_limit() -> None:
    number = 3
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, lambda stream: serve(stream, lambda: route(number)), [listener])
        port = listener.socket.getsockname()[1]
        async with Client.connect("127.0.0.1", port) as client:
            assert [queue.queue_id for queue in await client.queues("t")] == [0, 1, 2]
            number = (1 << 31) - 1
            with pytest.raises(FormatError, match=f"topic t has {number} queues, more than {QUEUES_MAX}"):
                await client.queues("t")
            number = -5
            assert await client.queues("t") == []
        nursery.cancel_scope.cancel()


def test_connection_that_was_lost_is_made_anew() -> None:
    trio.run(_connection_that_was_lost_is_made_anew)


async def _connection_that_was_lost_is_made_anew() -> None:
    accepted: list[trio.SocketStream] = []

    async def hold(stream: trio.SocketStream) -> None:
        accepted.append(stream)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, hold, [listener])
        port = listener.socket.getsockname()[1]
        address = f"127.0.0.1:{port}"
        async with Client.connect("127.0.0.1", port) as client:
            first = await client.link_to(address)
            assert await client.link_to(address) is first
            with trio.fail_after(WAIT_S):
                while len(accepted) < 2:
                    await trio.sleep(0.01)
                await accepted[1].aclose()
                while first.is_open:
                    await trio.sleep(0.01)
            second = await client.link_to(address)
            assert second is not first
            assert second.is_open
            for bad in ("host", "host:0", "host:" + "9" * 5000):
                with pytest.raises(FormatError, match="is no HOST:PORT"):
                    await client.link_to(bad)
        nursery.cancel_scope.cancel()
