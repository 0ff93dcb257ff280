"""A node served by the real loop, on a real port, with peers that are plain sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from broker.bmq.node.node import Node
from broker.bmq.session.session import Session
from broker.common.faults import Inconsistent
from broker.shell.loop.server import Listener, Server, listen
from formats.bmq.control import ber
from formats.bmq.control.messages import AdminCommand, ClientIdentity, ClientType, ControlMessage, NegotiationMessage
from formats.bmq.wire.event import EventType, build_schema_event, next_frame
from tests.broker.bmq.rig import Rig, identity
from tests.waiting import WAIT_S

__all__ = ["Peer", "Served", "serve"]

HOST = "127.0.0.1"


class Peer:
    """One connection to the node."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = bytearray()
        self._requests = 0

    @property
    def name(self) -> str:
        host, port = self.stream.socket.getsockname()
        return f"{host}:{port}"

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def event(self) -> tuple[EventType, bytes]:
        """The next event that comes: its type and its body. EOFError when the node has closed the connection."""
        while True:
            frame = next_frame(self._received, 0, len(self._received), 1 << 30)
            if frame is not None:
                body = bytes(self._received[frame.body : frame.end])
                del self._received[: frame.end]
                return EventType(frame.type), body
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise EOFError("the node closed the connection")
            self._received += data

    async def say_who(self, who: ClientIdentity) -> None:
        await self.send(build_schema_event(ber.encode(NegotiationMessage(choice=who))))
        await self.event()

    async def ask(self, choice: object) -> object:
        """A request's answer."""
        self._requests += 1
        message = ControlMessage(r_id=self._requests, choice=choice)  # type: ignore[arg-type]
        await self.send(build_schema_event(ber.encode(message)))
        while True:
            kind, body = await self.event()
            if kind is EventType.CONTROL:
                return ber.decode(ControlMessage, body).choice

    async def command(self, line: str) -> object:
        return await self.ask(AdminCommand(command=line))

    async def is_closed(self) -> bool:
        """Wait until the node closes the connection."""
        try:
            while True:
                await self.event()
        except EOFError:
            return True

    def close(self) -> None:
        self.stream.socket.close()


class Served:
    """A served node, as tests use it."""

    def __init__(self, node: Node, server: Server, port: int) -> None:
        self.node = node
        self.server = server
        self.port = port
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        """A peer that has not said anything."""
        peer = Peer(await trio.open_tcp_stream(HOST, self.port))
        self.peers.append(peer)
        return peer

    async def client(self) -> Peer:
        peer = await self.connect()
        await peer.say_who(identity())
        return peer

    async def administrator(self) -> Peer:
        peer = await self.connect()
        await peer.say_who(identity(ClientType.TCPADMIN))
        return peer

    def session_of(self, peer: Peer) -> Session:
        (session,) = (each for each in self.node.sessions.values() if each.description.endswith(peer.name))
        return session


def serve(
    rig: Rig,
    test: Callable[[Served], Awaitable[None]],
    beside: Callable[[], Awaitable[None]] | None = None,
    **options: Any,
) -> None:
    """Run the loop around a node until `test` is done, with a limit of time; what ends the loop is raised."""
    sock = listen(HOST, 0)
    port = sock.getsockname()[1]
    server = Server(rig.node, [Listener(sock)], **options)
    if beside is not None:
        server.serve_beside(beside)

    raised: list[BaseException] = []

    async def run_test(ready: trio.Event) -> None:
        await ready.wait()
        served = Served(rig.node, server, port)
        try:
            await test(served)
        except Exception as error:
            raised.append(error)
        for peer in served.peers:
            peer.close()
        server.stop()

    async def run() -> None:
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                ready = trio.Event()
                nursery.start_soon(run_test, ready)
                try:
                    await server.run(ready.set)
                except Inconsistent as failure:
                    raised.insert(0, failure)

    try:
        trio.run(run)
    finally:
        sock.close()
    if raised:
        raise raised[0]
