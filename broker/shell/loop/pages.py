"""Pages over HTTP for monitoring a broker: Prometheus, and probes of Kubernetes.

A long page is made in pieces, one in each turn of trio's loop, with the broker's own work between them
(`broker.shell.loop.server`); a short one is sent at once, since a probe must not wait. A fault here ends one connection
only.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import NamedTuple

import trio

from broker.common.exposition import CONTENT_TYPE
from broker.common.faults import Faults
from broker.common.page_request import Asked, Incomplete, PageConnection, Refused

__all__ = ["Page", "Pages", "standard_pages", "text_page"]

log = logging.getLogger("broker.pages")

# Maximum number of connections. Beyond it the oldest is closed, so that silent or slow peers do not delay probes.
CONNECTIONS_MAX = 64
# Time for a peer to send its request, and to receive the page.
REQUEST_S = 5.0
RESPONSE_S = 30.0
# Wait after a connection could not be accepted, most likely for want of file descriptors.
REFUSED_S = 0.5

PLAIN = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """A page. Pieces of its content are made as they are sent; an empty one only lets other work run."""

    status: HTTPStatus
    content_type: str
    content: bytes | Iterator[bytes]


PageMaker = Callable[[], Page]


def text_page(status: HTTPStatus, line: str) -> Page:
    return Page(status, PLAIN, f"{line}\n".encode())


def standard_pages(metrics: Callable[[], Iterator[bytes]], lacks: Callable[[], str | None]) -> dict[str, PageMaker]:
    """Make the pages of any broker: its metrics, and what it `lacks` to serve clients."""

    def show_metrics() -> Page:
        return Page(HTTPStatus.OK, CONTENT_TYPE, metrics())

    def show_health() -> Page:
        return text_page(HTTPStatus.OK, "ok")

    def show_readiness() -> Page:
        lacking = lacks()
        return text_page(HTTPStatus.OK if lacking is None else HTTPStatus.SERVICE_UNAVAILABLE, lacking or "ready")

    return {"/metrics": show_metrics, "/healthz": show_health, "/readyz": show_readiness}


class Pages:
    """The pages of a broker by their paths, on a listening socket.

    `making` is entered while a page is made: the broker's loop then gives way more often.
    """

    def __init__(
        self,
        sock: socket.socket,
        makers: Mapping[str, PageMaker],
        faults: Faults,
        making: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._sock = sock
        self._makers = makers
        self._faults = faults
        self._making = making
        # Oldest first.
        self._connections: dict[trio.CancelScope, None] = {}
        self._turn = trio.Lock()

    async def serve(self) -> None:
        listener = trio.socket.from_stdlib_socket(self._sock)
        with listener:
            async with trio.open_nursery() as nursery:
                while True:
                    stream = await _accept(listener)
                    scope = trio.CancelScope()
                    self._connections[scope] = None
                    if len(self._connections) > CONNECTIONS_MAX:
                        oldest = next(iter(self._connections))
                        del self._connections[oldest]
                        oldest.cancel()
                    nursery.start_soon(self._serve_one, stream, scope)

    async def _serve_one(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with stream:
                    await self._converse(stream, PageConnection())
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            log.debug("a page could not be sent: %s", error)
        except Exception as error:
            self._faults.note("a page", error)
        finally:
            self._connections.pop(scope, None)

    async def _converse(self, stream: trio.SocketStream, connection: PageConnection) -> None:
        with trio.fail_after(REQUEST_S):
            asked: Asked | Refused | Incomplete = Incomplete.WAITING
            while asked is Incomplete.WAITING:
                asked = connection.receive(await stream.receive_some(connection.room))
        if isinstance(asked, Incomplete):
            return
        page = self._find(asked)
        head = connection.head(page.status, page.content_type)
        with trio.fail_after(RESPONSE_S):
            if isinstance(page.content, bytes):
                await stream.send_all(head + connection.body(page.content) + connection.end())
                return
            with self._making():
                await stream.send_all(head)
                while (piece := await self._next(page.content)) is not None:
                    if piece:
                        await stream.send_all(connection.body(piece))
                await stream.send_all(connection.end())

    def _find(self, asked: Asked | Refused) -> Page:
        if isinstance(asked, Refused):
            return text_page(asked.status, asked.reason)
        maker = self._makers.get(asked.path)
        if maker is None:
            return text_page(HTTPStatus.NOT_FOUND, f"the pages are {', '.join(self._makers)}")
        try:
            return maker()
        except Exception as error:
            self._faults.note(f"the page {asked.path}", error)
            return text_page(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of this broker; its log has more")

    async def _next(self, pieces: Iterator[bytes]) -> bytes | None:
        async with self._turn:
            return next(pieces, None)


async def _accept(listener: trio.socket.SocketType) -> trio.SocketStream:
    while True:
        try:
            sock, _ = await listener.accept()
            return trio.SocketStream(sock)
        except OSError as error:
            log.warning("a connection for a page could not be accepted: %s", error.strerror)
            await trio.sleep(REFUSED_S)
