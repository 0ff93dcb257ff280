"""Pages beside a broker's loop: over real sockets, with peers that do as they please."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest
import trio

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.shell.loop import pages
from broker.shell.loop.pages import CONNECTIONS_MAX, Page, Pages, text_page
from broker.shell.loop.server import listen
from tests.broker.bmq.rig import start
from tests.broker.shell.loop.served import Served, serve
from tests.waiting import WAIT_S, eventually_in_trio

HOST = "127.0.0.1"
LONG = [b"~" * 100_000] * 100


class Watched:
    """Pages on a free port; `making` counts pages in preparation."""

    def __init__(self) -> None:
        self.sock = listen(HOST, 0)
        self.port: int = self.sock.getsockname()[1]
        self.faults = Faults(Now(0, 0))
        self.making = 0
        self.most_making = 0
        makers: dict[str, Callable[[], Page]] = {
            "/short": self.short,
            "/long": lambda: Page(HTTPStatus.OK, "text/plain", iter(LONG)),
            "/broken": self.broken,
            "/breaks": lambda: Page(HTTPStatus.OK, "text/plain", self.breaks()),
        }
        self.pages = Pages(self.sock, makers, self.faults, self.count)

    @contextmanager
    def count(self) -> Iterator[None]:
        self.making += 1
        self.most_making = max(self.most_making, self.making)
        try:
            yield
        finally:
            self.making -= 1

    def short(self) -> Page:
        return text_page(HTTPStatus.OK, "ok")

    def broken(self) -> Page:
        raise ValueError("no such thing")

    def breaks(self) -> Iterator[bytes]:
        yield b"a piece"
        raise ValueError("half way")

    async def ask(self, path: str, method: str = "GET") -> bytes:
        async with await self.connect() as stream:
            await stream.send_all(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            return await everything(stream)

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(HOST, self.port)


async def everything(stream: trio.SocketStream) -> bytes:
    return b"".join([data async for data in stream])


def run(test: Callable[[Watched], Awaitable[None]], *, serves: bool = True) -> None:
    async def main() -> None:
        watched = Watched()
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                if serves:
                    nursery.start_soon(watched.pages.serve)
                await test(watched)
                nursery.cancel_scope.cancel()
        assert watched.making == 0

    trio.run(main)


def test_pages_and_refusals() -> None:
    async def test(watched: Watched) -> None:
        assert (await watched.ask("/short?now")).endswith(b"\r\n\r\n3\r\nok\n\r\n0\r\n\r\n")
        long = await watched.ask("/long")
        assert long.count(b"~") == sum(map(len, LONG))
        assert long.endswith(b"\r\n0\r\n\r\n")
        assert (await watched.ask("/other")).startswith(b"HTTP/1.1 404 ")
        assert (await watched.ask("/short", "POST")).startswith(b"HTTP/1.1 405 ")
        assert (await watched.ask("bad request")).startswith(b"HTTP/1.1 400 ")
        assert not watched.faults.others

    run(test)


def test_a_fault_costs_one_page() -> None:
    async def test(watched: Watched) -> None:
        assert (await watched.ask("/broken")).startswith(b"HTTP/1.1 500 ")
        # A truncated page has no end, which readers notice.
        cut = await watched.ask("/breaks")
        assert b"a piece" in cut
        assert not cut.endswith(b"0\r\n\r\n")
        assert watched.faults.others == 2
        assert (await watched.ask("/short")).startswith(b"HTTP/1.1 200 ")

    run(test)


def test_peers_that_say_nothing_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "REQUEST_S", 0.2)

    async def test(watched: Watched) -> None:
        silent = [await watched.connect() for _ in range(8)]
        await silent[0].send_all(b"GET /short HTTP/1.1\r\nHost:")
        for stream in silent:
            async with stream:
                assert await everything(stream) == b""

    run(test)


def test_peers_that_are_silent_or_slow_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUEST_S", "RESPONSE_S"):
        monkeypatch.setattr(pages, name, 1_000.0)

    async def test(watched: Watched) -> None:
        held = []
        for number in range(3 * CONNECTIONS_MAX):
            stream = await watched.connect()
            held.append(stream)
            begun = (b"", b"GET /sho", b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")[number % 3]
            if begun:
                await stream.send_all(begun)
            if number % 16 == 15:
                assert (await watched.ask("/short")).startswith(b"HTTP/1.1 200 ")
        # The oldest had to go, the newest are still there.
        async with held[0]:
            assert await everything(held[0]) == b""
        await held[-3].send_all(b"GET /short HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (await everything(held[-3])).startswith(b"HTTP/1.1 200 ")
        for stream in held:
            await stream.aclose()

    run(test)


def test_probes_wait_for_no_long_page() -> None:
    made = 0

    def slow() -> Iterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b""

    async def test(watched: Watched) -> None:
        watched.pages = Pages(
            watched.sock,
            {"/slow": lambda: Page(HTTPStatus.OK, "text/plain", slow()), "/short": watched.short},
            watched.faults,
            watched.count,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.pages.serve)
            held = [await watched.connect() for _ in range(CONNECTIONS_MAX - 1)]
            for stream in held:
                await stream.send_all(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n")
            while watched.making < len(held):
                await trio.lowlevel.checkpoint()
            async with await watched.connect() as probe:
                await probe.send_all(b"GET /short HTTP/1.1\r\nHost: here\r\n\r\n")
                before = made
                assert (await everything(probe)).endswith(b"ok\n\r\n0\r\n\r\n")
                # One piece is made in a turn of the loop, and a probe takes some turns, but not one for each page.
                assert made - before < CONNECTIONS_MAX // 2
            for stream in held:
                await stream.aclose()
            nursery.cancel_scope.cancel()

    run(test, serves=False)


def test_a_peer_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RESPONSE_S", 1.0)

    async def test(watched: Watched) -> None:
        async with await watched.connect() as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await stream.send_all(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")
            # Others are served meanwhile.
            assert (await watched.ask("/long")).endswith(b"\r\n0\r\n\r\n")
            assert watched.making == 1
            await eventually_in_trio(lambda: watched.making == 0)
            assert not (await everything(stream)).endswith(b"\r\n0\r\n\r\n")

    run(test)


def test_pages_beside_a_node() -> None:
    rig = start()
    watched = Watched()

    def slow() -> Iterator[bytes]:
        for _ in range(50):
            yield b""
        yield b"done"

    async def test(served: Served) -> None:
        client = await served.administrator()
        first = await watched.ask("/slow")
        assert b"done" in first
        # The node goes on while a page is asked for, and has its turn between two pieces.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.ask, "/slow")
            for _ in range(10):
                await client.command("STAT SHOW")
        assert watched.most_making == 1

    watched.pages = Pages(
        watched.sock,
        {"/slow": lambda: Page(HTTPStatus.OK, "text/plain", slow())},
        rig.node.faults,
        watched.count,
    )
    serve(rig, test, beside=watched.pages.serve)
