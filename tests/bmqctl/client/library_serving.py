"""A fake broker that listens under asyncio or trio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc

from tests.bmqctl.client.fakes import FakeBroker

__all__ = ["Server", "serving"]


@dataclass
class Server:
    """A fake broker on a port; `cut` ends its connections, and it reads while `reading` is set."""

    broker: FakeBroker
    port: int = 0
    streams: list[anyio.abc.ByteStream] = field(default_factory=list)
    reading: anyio.Event = field(default_factory=anyio.Event)

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        self.streams.append(stream)
        self.broker.hang_up()
        async with stream:
            try:
                while True:
                    data = await stream.receive()
                    await self.reading.wait()
                    if reply := self.broker.receive(data):
                        await stream.send(reply)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass

    async def send(self, data: bytes) -> None:
        """Send an event on the newest connection."""
        await self.streams[-1].send(data)

    async def cut(self) -> None:
        for stream in self.streams:
            await stream.aclose()


@asynccontextmanager
async def serving(broker: FakeBroker | None = None) -> AsyncIterator[Server]:
    server = Server(broker or FakeBroker())
    server.reading.set()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()
