"""A nameserver and broker in one, under asyncio or trio, that answers what the client library asks, or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from formats.rocketmq.remoting.bodies.clients import CONSUMER_IDS, HEARTBEAT, ConsumerIds
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, BrokerData, QueueData, TopicRoute
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame, next_frame

__all__ = ["FakeCluster", "serving"]

RETRY_PREFIX = "%RETRY%"


class FakeCluster:
    """A cluster whose topics have one empty queue; requests with a code of `silent` have no answer.

    With `is_forgetful` it keeps no members of groups, and with `refuses_groups` it refuses heartbeats with a consumer.
    """

    def __init__(self) -> None:
        self.port = 0
        self.silent: set[RequestCode] = set()
        self.asked: list[Frame] = []
        self.came = anyio.Event()
        self.members: list[str] = []
        self.is_forgetful = False
        self.refuses_groups = False
        self.streams: list[anyio.abc.ByteStream] = []

    @property
    def uri(self) -> str:
        return f"rocketmq://127.0.0.1:{self.port}"

    def count(self, code: RequestCode) -> int:
        """The number of requests with a code."""
        return sum(frame.code == code for frame in self.asked)

    async def await_request(self, code: RequestCode, count: int = 1) -> None:
        """Wait until `count` requests with a code have come."""
        while self.count(code) < count:
            await self.came.wait()

    async def cut(self) -> None:
        """End all connections."""
        for stream in self.streams:
            await stream.aclose()

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        held = b""
        self.streams.append(stream)
        async with stream:
            try:
                while True:
                    held += await stream.receive()
                    while (found := next_frame(memoryview(held), 0, len(held))) is not None:
                        frame, end = found
                        held = held[end:]
                        answer = self._answer(frame)
                        self.asked.append(frame)
                        self.came.set()
                        self.came = anyio.Event()
                        if frame.code not in self.silent and answer is not None:
                            await stream.send(encode_frame(answer._replace(opaque=frame.opaque)))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass

    def _answer(self, frame: Frame) -> Frame | None:
        """The answer to a request; None for a pull, which is held."""
        body, code, fields = b"", ResponseCode.SUCCESS, {"offset": "0"}
        match frame.code:
            case RequestCode.PULL_MESSAGE:
                return None
            case RequestCode.GET_ROUTEINFO_BY_TOPIC if (frame.ext_fields or {})["topic"].startswith(RETRY_PREFIX):
                code = ResponseCode.TOPIC_NOT_EXIST
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                brokers = [BrokerData("cluster", "broker", {0: f"127.0.0.1:{self.port}"})]
                body = TOPIC_ROUTE.write(TopicRoute(brokers, [QueueData("broker", 1, 1, 6, 0)]))
            case RequestCode.HEART_BEAT if self.refuses_groups and HEARTBEAT.read(bytes(frame.body)).consumer_data_set:
                code = ResponseCode.SYSTEM_ERROR
            case RequestCode.HEART_BEAT:
                self.members = [] if self.is_forgetful else [HEARTBEAT.read(bytes(frame.body)).client_id]
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                body = CONSUMER_IDS.write(ConsumerIds(self.members))
        return Frame(code, 0, FrameFlag.RESPONSE, ext_fields=fields, body=body)


@asynccontextmanager
async def serving() -> AsyncIterator[FakeCluster]:
    """Run a cluster, which listens on a port of its own."""
    cluster = FakeCluster()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        cluster.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        group.start_soon(listener.serve, cluster.serve)
        yield cluster
        group.cancel_scope.cancel()
