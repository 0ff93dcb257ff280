"""Carries a machine's bytes over TCP under trio: one task reads, one writes, one watches the clock.

All output of the machine between two turns of the writer goes out in one piece. If the machine is to outlive its
connections, a lost one is replaced for as long as the machine wants that (source: `bmqio::ReconnectingChannelFactory`,
with the interval of `bmqimp::Application`, which does not grow here).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import trio

from bmqctl.client.protocol.events import Event
from bmqctl.client.protocol.lifecycle import Session
from bmqctl.client.protocol.machine import Machine

__all__ = ["Link", "dial", "now_ns", "tls_context"]

READ_SIZE = 262_144
# How late a timeout may be noticed that was set while the clock task slept.
TICK_S = 0.25
SECOND_NS = 1_000_000_000


def now_ns() -> int:
    """The clock of a link's machine."""
    return time.monotonic_ns()


def tls_context(authority: Path) -> ssl.SSLContext:
    """Make a context that trusts the certificates of the file `authority`, in PEM. Raises `OSError` if it has none."""
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def dial(host: str, port: int, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    """Connect. Raises `OSError` if nobody listens, or its certificate is not trusted by `tls`."""
    stream = await trio.open_tcp_stream(host, port)
    if tls is None:
        return stream
    secured = trio.SSLStream(stream, tls, server_hostname=host)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as fault:
        await trio.aclose_forcefully(secured)
        raise OSError(f"no TLS with {host}:{port}: {fault.__cause__ or fault}") from None
    return secured


class Link:
    """The I/O of one machine.

    `handle` receives the events that result from reading and from the passing of time. After a call of the machine,
    `wake` or `feed` is due.
    """

    def __init__(
        self,
        machine: Machine,
        host: str,
        port: int,
        handle: Callable[[list[Event]], None],
        tls: ssl.SSLContext | None = None,
        interval_s: float = 0.5,
    ) -> None:
        self.machine = machine
        self._host = host
        self._port = port
        self._handle = handle
        self._tls = tls
        self._interval_s = interval_s
        self._sending = 0
        self._wanted = trio.Event()
        self._drained = trio.Event()
        self._whole: trio.CancelScope | None = None
        self._carrying: trio.CancelScope | None = None

    @property
    def pending_size(self) -> int:
        """Bytes that have not reached the socket."""
        return self.machine.pending_size + self._sending

    async def drained(self) -> None:
        """Wait until some of them have reached it, or the link ends."""
        await self._drained.wait()

    def wake(self) -> None:
        """Let the writer look for bytes to write."""
        self._wanted.set()

    def feed(self, events: list[Event]) -> None:
        """Pass on the events of a call of the machine, and do what the machine's new state needs."""
        self._handle(events)
        self.wake()
        state = self.machine.state
        if state is Session.STOPPED and self._whole is not None:
            self._whole.cancel()
        elif state is Session.RECONNECTING and self._carrying is not None:
            self._carrying.cancel()

    async def run(self, stream: trio.abc.Stream | None = None) -> None:
        """Run until the machine has stopped, on `stream` first if it is given."""
        try:
            async with trio.open_nursery() as nursery:
                self._whole = nursery.cancel_scope
                nursery.start_soon(self._watch)
                while self.machine.state is not Session.STOPPED:
                    await self._carry(stream or await self._connect())
                    stream = None
                nursery.cancel_scope.cancel()
        finally:
            self._drained.set()

    async def _connect(self) -> trio.abc.Stream:
        while True:
            try:
                return await dial(self._host, self._port, self._tls)
            except OSError:
                await trio.sleep(self._interval_s)

    async def _carry(self, stream: trio.abc.Stream) -> None:
        self.machine.start(now_ns())
        async with stream, trio.open_nursery() as nursery:
            self._carrying = nursery.cancel_scope
            nursery.start_soon(self._write, stream)
            await self._read(stream)
            nursery.cancel_scope.cancel()
        self._carrying = None
        self._sending = 0
        self._drained.set()
        self._drained = trio.Event()
        if self.machine.state is Session.RECONNECTING:
            await trio.sleep(self._interval_s)

    async def _read(self, stream: trio.abc.Stream) -> None:
        while self.machine.state not in (Session.STOPPED, Session.RECONNECTING):
            try:
                data = await stream.receive_some(READ_SIZE)
            except trio.BrokenResourceError as fault:
                self.feed(self.machine.cut(f"connection lost: {fault.__cause__ or fault}"))
                return
            if not data:
                self.feed(self.machine.cut("the broker closed the connection"))
                return
            self.feed(self.machine.receive(bytes(data), now_ns()))

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            data = self.machine.data_to_send()
            if not data:
                self._wanted = trio.Event()
                await self._wanted.wait()
                continue
            self._sending = len(data)
            try:
                await stream.send_all(data)
            except trio.BrokenResourceError:
                return  # the reader finds out why
            self._sending = 0
            self._drained.set()
            self._drained = trio.Event()

    async def _watch(self) -> None:
        while True:
            deadline_ns = self.machine.deadline_ns
            wait_s = TICK_S if deadline_ns is None else (deadline_ns - now_ns()) / SECOND_NS
            await trio.sleep(min(max(wait_s, 0.0), TICK_S))
            self.feed(self.machine.tick(now_ns()))
