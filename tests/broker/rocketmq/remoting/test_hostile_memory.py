"""The memory that hostile connections hold: halves of requests, and answers that are not read."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.standing import Standing
from broker.common.timers import Timers
from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import BACKLOG_BYTES
from broker.shell.loop.server import Listener, Server, listen
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.rig import Peer as Client
from tests.broker.rocketmq.rig import Rig
from tests.waiting import WAIT_S

MIB = 1 << 20
STRANGERS_BYTES_MAX = 64 * MIB
PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "1",
}
SEND = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "k\x01v\x02"}
ASK = encode_frame(Frame(RequestCode.GET_MAX_OFFSET, 7, ext_fields={"topic": "t", "queueId": "0"}))


def front(code: int, length: int, fields: dict[str, str] | None = None) -> bytes:
    """The front of a frame of this length: its header, and no body."""
    whole = encode_frame(Frame(code, 1, ext_fields=fields))
    return struct.pack(">I", length) + whole[4:]


class Peer:
    """A connection to the node."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = b""

    async def send(self, data: bytes) -> bool:
        """Send data; return False if the node has closed the connection."""
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            return False
        return True

    async def answer(self) -> Frame:
        while True:
            view = memoryview(self._received)
            found = next_frame(view, 0, len(view))
            if found is not None:
                frame = found[0]._replace(body=bytes(found[0].body))
                self._received = self._received[found[1] :]
                return frame
            data = await self.stream.receive_some()
            if not data:
                raise EOFError("the node closed the connection")
            self._received += data

    async def is_closed(self) -> bool:
        """Wait until the node closes the connection."""
        with suppress(trio.BrokenResourceError):
            while await self.stream.receive_some():
                pass
        return True


class Served:
    """A broker served by the real loop."""

    def __init__(self, rig: Rig, server: Server, port: int) -> None:
        self.rig = rig
        self.server = server
        self._port = port
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        peer = Peer(await trio.open_tcp_stream("127.0.0.1", self._port))
        self.peers.append(peer)
        return peer

    async def is_served(self) -> bool:
        """Return whether another client is answered."""
        peer = await self.connect()
        await peer.send(ASK)
        found = await peer.answer()
        await peer.stream.aclose()
        return found.code == ResponseCode.SUCCESS

    @property
    def held(self) -> int:
        """The bytes that links and sessions hold."""
        return sum(
            len(link._held)
            + (0 if link._long is None else len(link._long))
            + len(link._unsent)
            + link.machine.output_size()
            for link in self.server._rounds.links.values()
        )


def serve(test: Callable[[Served], Awaitable[None]], rig: Rig | None = None, connections_max: int = 1_000) -> None:
    rig = rig or Rig()
    now = Now(0, 0)
    node = Node(now, Faults(now), Timers())
    sock = listen("127.0.0.1", 0)
    listener = Listener(sock, connect=node.connect_to(rig.broker))
    server = Server(node, [listener], connections_max=connections_max, read_bytes=64 << 10)
    raised: list[Exception] = []

    async def run_test(ready: trio.Event) -> None:
        await ready.wait()
        served = Served(rig, server, sock.getsockname()[1])
        try:
            await test(served)
        except Exception as error:
            raised.append(error)
        for peer in served.peers:
            peer.stream.socket.close()
        server.stop()

    async def run() -> None:
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                ready = trio.Event()
                nursery.start_soon(run_test, ready)
                await server.run(ready.set)

    try:
        trio.run(run)
    finally:
        sock.close()
    if raised:
        raise raised[0]
    assert not node.faults.others


def test_strangers_with_halves_of_requests_share_a_bound() -> None:
    half = front(RequestCode.SEND_MESSAGE_V2, 15 * MIB, SEND) + bytes(4 * MIB)

    async def test(served: Served) -> None:
        greatest, closed = 0, 0
        for _ in range(30):
            closed += not await (await served.connect()).send(half)
            assert await served.is_served()
            greatest = max(greatest, served.held)
        assert greatest <= STRANGERS_BYTES_MAX + 8 * MIB
        # A producer whose first request is a large message is served beside them.
        producer = await served.connect()
        await producer.send(encode_frame(Frame(RequestCode.SEND_MESSAGE_V2, 1, ext_fields=SEND, body=bytes(3 * MIB))))
        assert (await producer.answer()).code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL)
        assert await served.is_served()

    serve(test)


def rig_with_message(size: int) -> Rig:
    rig = Rig()
    assert rig.peer().send(b"m" * size).code == ResponseCode.SUCCESS
    return rig


@pytest.mark.parametrize("size", [200_000, 20_000])
def test_answers_that_are_not_read_hold_up_further_requests(size: int) -> None:
    """Requests that come at once are answered as the peer reads, and all of them."""
    count = 60 * MIB // 200_000
    asked = b"".join(encode_frame(Frame(RequestCode.PULL_MESSAGE, n, ext_fields=PULL)) for n in range(count))

    async def test(served: Served) -> None:
        peers = [await served.connect() for _ in range(4)]
        for peer in peers:
            peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            await peer.send(ASK + asked)
            assert (await peer.answer()).opaque == 7
        assert await served.is_served()
        # Bytes being sent, bytes to follow, one more answer of each, and the requests.
        assert served.held <= len(peers) * (2 * (BACKLOG_BYTES + size) + len(asked))
        for number in range(count):
            found = await peers[1].answer()
            assert (found.opaque, found.code) == (number, ResponseCode.SUCCESS)
        assert await peers[1].send(ASK)
        assert (await peers[1].answer()).opaque == 7

    serve(test, rig_with_message(size))


def test_a_session_stops_between_the_answers_of_a_read() -> None:
    client = Client(rig_with_message(200_000), 9)
    asked = b"".join(encode_frame(Frame(RequestCode.PULL_MESSAGE, n, ext_fields=PULL)) for n in range(100))
    answered = 0
    while asked:
        used = client.session.receive(memoryview(asked))
        assert used
        asked = asked[used:]
        assert client.session.output_size() <= BACKLOG_BYTES + 210_000
        assert client.session.paused == bool(asked)
        answered += len(client.take_answers())
        assert not client.session.paused
    assert answered == 100


def test_strangers_make_room_for_others() -> None:
    async def test(served: Served) -> None:
        known = await served.connect()
        await known.send(ASK)
        await known.answer()
        silent = [await served.connect() for _ in range(19)]
        await silent[5].send(ASK[:10])
        for _ in range(30):
            assert await served.is_served()
        assert await silent[0].is_closed()
        await known.send(ASK)
        assert (await known.answer()).opaque == 7
        assert len(served.server._rounds.links) <= 20

    serve(test, connections_max=20)


def test_a_peer_is_a_stranger_until_it_is_let_in() -> None:
    rig = Rig()
    client = Client(rig, 9)
    standings = [client.session.standing]
    client.session.receive(memoryview(ASK[:-1]))
    standings.append(client.session.standing)
    client.call(RequestCode.GET_MAX_OFFSET, topic="t", queueId=0)
    standings.append(client.session.standing)
    assert standings == [Standing.STRANGER, Standing.STRANGER, Standing.CLIENT]
    rig.access_options = AccessOptions(authentication=True)
    rig.stop()
    client = Client(rig, 10)
    denied = client.call(RequestCode.GET_MAX_OFFSET, topic="t", queueId=0)
    assert denied.code == ResponseCode.NO_PERMISSION
    assert client.session.standing == Standing.STRANGER
