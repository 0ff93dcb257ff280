"""Connections that cannot be made: every event loop gives the same reason."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import pytest

from bmqctl.common.dialing import open_stream
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST

pytestmark = pytest.mark.anyio

Serve = Callable[[anyio.abc.SocketStream], Awaitable[None]]


async def check(serve: Serve, reason: str, timeout_s: float) -> None:
    """Check that no connection with TLS can be made to this server, and the reason."""
    async with await anyio.create_tcp_listener(local_host=HOST) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(OSError, match=reason):
            await open_stream(HOST, port, timeout_s, ssl.create_default_context())
        group.cancel_scope.cancel()


async def test_refused_connection_is_reported() -> None:
    with pytest.raises(OSError, match=r"^Connection refused$"):
        await open_stream(HOST, free_port(), 5.0)


async def test_a_server_is_silent() -> None:
    async def wait(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    await check(wait, r"^no answer within 0\.05 s$", 0.05)


async def test_a_server_has_no_tls() -> None:
    async def close(stream: anyio.abc.SocketStream) -> None:
        await stream.receive()
        await stream.aclose()

    async def talk(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"hello, this is no TLS at all\n")

    await check(close, "^no TLS: ", 5.0)
    await check(talk, "^no TLS: ", 5.0)
