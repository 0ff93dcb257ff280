"""The console's server: Hypercorn under trio, on a given socket."""

from __future__ import annotations

import logging
import math
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

__all__ = ["Certificate", "Unaccepted", "serve_console"]

GRACEFUL_S = 1.0
# Between two lines about connections that cannot be accepted, which are retried ten times a second.
_TELL_S: Final = 60.0


class Certificate(NamedTuple):
    certificate: Path
    key: Path


class Unaccepted(logging.Filter):
    """A filter of trio's log: one line about connections that cannot be accepted, instead of many tracebacks."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell
        self._told_s = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created - self._told_s >= _TELL_S:
            self._told_s = record.created
            self._tell(f"cannot accept a connection: {record.getMessage()}")
        return False


def serve_console(
    application: ASGIApp, sock: socket.socket, certificate: Certificate | None, tell: Callable[[str], None]
) -> None:
    """Serve the console until SIGTERM or SIGINT. `tell` gets lines for the user."""
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
    logging.getLogger("trio.serve_listeners").addFilter(Unaccepted(tell))
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
