"""Many requests that come at once: their connection gives way to others."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.timers import Timers
from broker.rocketmq.grpc.http2.call import Call, Limits
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.http2.wire import frame_message
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.remoting.step_time import StepTime
from broker.shell.loop.server import Listener, Server, listen
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.grpc.http2.peer import Client
from tests.waiting import WAIT_S

HEAVY, LIGHT = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO
COUNT = 400


class Costly:
    """A service whose heavy requests take 4 ms of its clock each. `order` has the codes as they were carried out."""

    def __init__(self) -> None:
        self.ns = 0
        self.order: list[int] = []

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        self.order.append(frame.code)
        if frame.code == HEAVY:
            self.ns += 4_000_000
        session.answer(frame, Frame(ResponseCode.SUCCESS, 0))

    def disconnected(self, session: Session) -> None:
        pass


def make_node(costly: Costly) -> Node:
    """Make a node whose requests are measured, as far as the tree under test does so."""
    now = Now()
    made: Any = Node
    try:
        node: Node = made(now, Faults(now), Timers(), lambda: costly.ns)
    except TypeError:
        node = made(now, Faults(now), Timers())
    return node


async def answers(stream: trio.SocketStream, count: int) -> list[int]:
    """Return the numbers of the next answers."""
    data, found = b"", list[int]()
    while len(found) < count:
        received = await stream.receive_some(1 << 16)
        assert received
        data += bytes(received)
        view, at = memoryview(data), 0
        while (parsed := next_frame(view, at, len(view))) is not None:
            frame, at = parsed
            found.append(frame.opaque)
        data = data[at:]
    return found


def test_many_heavy_requests_of_one_read_let_others_through() -> None:
    costly = Costly()
    node = make_node(costly)
    sock = listen("127.0.0.1", 0)
    server = Server(node, [Listener(sock, connect=node.connect_to(costly))], read_bytes=64 << 10)

    async def connect() -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", sock.getsockname()[1])
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    async def attack_and_ask() -> None:
        greedy, other = await connect(), await connect()
        await greedy.send_all(b"".join(encode_frame(Frame(HEAVY, number)) for number in range(COUNT)))
        # In the same round as the heavy ones or after it, but in no case after all of them.
        await other.send_all(encode_frame(Frame(LIGHT, 1)))
        assert await answers(other, 1) == [1]
        assert await answers(greedy, COUNT) == list(range(COUNT))
        await greedy.aclose()
        await other.aclose()
        server.stop()

    async def run() -> None:
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                await server.run(lambda: nursery.start_soon(attack_and_ask))

    try:
        trio.run(run)
    finally:
        sock.close()
    assert not node.faults.others
    assert costly.order.count(HEAVY) == COUNT
    assert costly.order.index(LIGHT) < COUNT // 4


def test_connections_with_many_requests_share_the_time_of_a_step() -> None:
    """Each carries out one request at least, and in all no more than the step has time for, and one each."""
    costly = Costly()
    node = make_node(costly)
    data = b"".join(encode_frame(Frame(HEAVY, number)) for number in range(20))
    waiting = deque(
        (node.connect_to(costly)(f"127.0.0.1:{port}", frozenset), memoryview(data)) for port in range(1, 11)
    )
    steps = 0
    while waiting:
        before = len(costly.order)
        for _ in range(len(waiting)):
            session, rest = waiting.popleft()
            if not session.paused:
                used = session.receive(rest)
                assert used
                rest = rest[used:]
            session.take_output()
            if rest:
                assert session.paused
                waiting.append((session, rest))
        assert len(costly.order) - before <= 3 + 10
        node.end_step()
        steps += 1
        assert steps < 500
    assert len(costly.order) == 200


class CostlyCalls:
    """A service for gRPC whose calls take 4 ms of its clock each."""

    def __init__(self) -> None:
        self.ns = 0
        self.done = 0

    def begin(self, call: Call) -> None:
        pass

    def message(self, call: Call, data: bytes) -> None:
        pass

    def half_closed(self, call: Call) -> None:
        self.ns += 4_000_000
        self.done += 1
        call.finish()

    def cancelled(self, call: Call) -> None:
        pass

    def disconnected(self, session: GrpcSession) -> None:
        pass


def test_many_calls_of_one_read_let_others_through() -> None:
    calls = CostlyCalls()
    client = Client(calls)
    step_time = StepTime(lambda: calls.ns)
    client.session = session = GrpcSession(
        1, Host("127.0.0.1", 5), calls, lambda _: None, lambda: 0, Limits(calls_max=1_000), step_time
    )
    client.http = H2Connection(H2Configuration(client_side=True))
    client.http.initiate_connection()
    sent = [client.open("Echo", padding="x" * 300) for _ in range(100)]
    for stream_id in sent:
        client.http.send_data(stream_id, frame_message(b"m" * 500), end_stream=True)
    rest, ended, most = client.http.data_to_send(), 0, 0
    while rest or session.paused:
        before = calls.done
        if not session.paused:
            # A part of the next frame has come, too.
            rest = rest[session.receive(memoryview(rest)) :]
        most = max(most, calls.done - before)
        ended += sum(isinstance(event, StreamEnded) for event in client.http.receive_data(bytes(session.take_output())))
        step_time.end_step()
    assert (calls.done, ended, session.reason) == (100, 100, "")
    assert most <= 20
