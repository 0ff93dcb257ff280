"""The console's server: Hypercorn under trio, on a given socket."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any, NamedTuple

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

__all__ = ["Certificate", "serve_console"]

# Time for pending answers when the console ends.
GRACEFUL_S = 1.0


class Certificate(NamedTuple):
    certificate: Path
    key: Path


def serve_console(application: ASGIApp, sock: socket.socket, certificate: Certificate | None) -> None:
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]
    config.accesslog = None
    config.errorlog = "-"
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.graceful_timeout = GRACEFUL_S
    if certificate is not None:
        config.certfile = str(certificate.certificate)
        config.keyfile = str(certificate.key)
    trio.run(_serve, application, config)


async def _serve(application: ASGIApp, config: Config) -> None:
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

            async def watch_signals() -> None:
                async for _ in signals:
                    ended.set()

            nursery.start_soon(watch_signals)
            # The two packages have different types for the same protocol.
            served: Any = application
            await serve(served, config, shutdown_trigger=ended.wait)
        nursery.cancel_scope.cancel()
