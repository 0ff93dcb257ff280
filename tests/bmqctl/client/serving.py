"""A fake broker that listens."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from tests.bmqctl.client.fakes import FakeBroker

__all__ = ["Server", "serving"]


@dataclass
class Server:
    """A fake broker on a port; `cut` ends its connections, `reading` may be replaced to hold it up."""

    broker: FakeBroker
    port: int = 0
    streams: list[trio.abc.Stream] = field(default_factory=list)
    reading: trio.Event = field(default_factory=trio.Event)

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.streams.append(stream)
        self.broker.hang_up()
        try:
            while data := await stream.receive_some(65536):
                await self.reading.wait()
                if reply := self.broker.receive(bytes(data)):
                    await stream.send_all(reply)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def cut(self) -> None:
        for stream in self.streams:
            await stream.aclose()


@asynccontextmanager
async def serving(broker: FakeBroker | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(broker or FakeBroker())
    server.reading.set()
    async with trio.open_nursery() as nursery:
        if tls is None:
            (listener, *_) = await nursery.start(trio.serve_tcp, server.serve, 0)
        else:
            (secured, *_) = await nursery.start(trio.serve_ssl_over_tcp, server.serve, 0, tls)
            listener = secured.transport_listener
        server.port = listener.socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()
