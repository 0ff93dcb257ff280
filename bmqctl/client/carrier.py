"""Carries a machine's bytes over TCP under anyio, on asyncio and trio alike.

One task reads, one writes and one watches the clock. The writer sends all output since its last turn in one piece. A
lost connection is replaced for as long as the machine wants that (source: `bmqio::ReconnectingChannelFactory`, with the
interval of `bmqimp::Application`, which does not grow here).
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import anyio
import anyio.abc

from bmqctl.client.protocol.events import Event
from bmqctl.client.protocol.guid import CLIENT_ID_SIZE, ClientGuidGenerator
from bmqctl.client.protocol.lifecycle import Session
from bmqctl.client.protocol.machine import Machine
from bmqctl.common.dialing import open_stream

__all__ = ["SECOND_NS", "Carrier", "Endpoint", "new_guids", "now_ns"]

SECOND_NS: Final = 1_000_000_000
READ_SIZE: Final = 262_144
RECONNECT_S: Final = 0.5
# The longest delay of a timeout set while the clock task slept.
TICK_S: Final = 0.25


class Endpoint(NamedTuple):
    """A broker's address; `tls` is None for a plain connection."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def now_ns() -> int:
    return time.monotonic_ns()


def new_guids() -> ClientGuidGenerator:
    return ClientGuidGenerator(secrets.token_bytes(CLIENT_ID_SIZE), time.monotonic_ns(), time.time_ns())


class Carrier:
    """The I/O of one machine.

    `handle` receives the events that result from reading and from the passing of time; `written` is called after each
    write. After a call of the machine, `wake` or `feed` is due.
    """

    def __init__(
        self,
        machine: Machine,
        endpoint: Endpoint,
        handle: Callable[[list[Event]], None],
        written: Callable[[], None],
        timeout_s: float,
    ) -> None:
        self.machine = machine
        self._endpoint = endpoint
        self._handle = handle
        self._written = written
        self._timeout_s = timeout_s
        self._sending = 0
        self._is_idle = False
        # A second handle of a plain connection, for writing without a turn of the writer; and its unwritten data.
        self._direct: socket.socket | None = None
        self._rest = b""
        self._wanted = anyio.Event()
        self._whole: anyio.CancelScope | None = None
        self._carrying: anyio.CancelScope | None = None

    @property
    def pending_size(self) -> int:
        return self.machine.pending_size + self._sending

    def wake(self) -> None:
        if self._is_idle and self.machine.pending_size + self._sending:
            self._is_idle = False
            self._wanted.set()

    def flush(self) -> None:
        if self._direct is None or not self._is_idle:
            self.wake()
            return
        data = self.machine.data_to_send()
        try:
            sent = self._direct.send(data)
        except OSError:
            sent = 0  # the socket accepts nothing, or is broken, which the reader finds out
        if sent < len(data):
            self._rest = bytes(data[sent:])
            self._sending = len(self._rest)
            self.wake()

    def feed(self, events: list[Event]) -> None:
        self._handle(events)
        self.wake()
        state = self.machine.state
        if state is Session.STOPPED and self._whole is not None:
            self._whole.cancel()
        elif state is Session.RECONNECTING and self._carrying is not None:
            self._carrying.cancel()

    async def run(self, stream: anyio.abc.ByteStream | None = None, *, is_shielded: bool = False) -> None:
        """Run until the machine has stopped, on `stream` first if given.

        With `is_shielded` cancellation from outside has no effect, as the session must be ended on this connection.
        """
        with anyio.CancelScope(shield=is_shielded) as self._whole:
            if self.machine.state is Session.STOPPED:
                if stream is not None:
                    await anyio.aclose_forcefully(stream)
                return
            await self._run(stream)

    async def _run(self, stream: anyio.abc.ByteStream | None) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch)
            await self._carry(stream or await self._connect())
            while self.machine.state is not Session.STOPPED:
                await anyio.sleep(RECONNECT_S)
                await self._carry(await self._connect())
            group.cancel_scope.cancel()

    async def _connect(self) -> anyio.abc.ByteStream:
        host, port, tls = self._endpoint
        while True:
            try:
                return await open_stream(host, port, self._timeout_s, tls)
            except OSError:
                await anyio.sleep(RECONNECT_S)

    async def _carry(self, stream: anyio.abc.ByteStream) -> None:
        if self._endpoint.tls is None:
            self._direct = stream.extra(anyio.abc.SocketAttribute.raw_socket).dup()
            self._direct.setblocking(False)
        try:
            self.machine.start(now_ns())
            async with anyio.create_task_group() as group:
                self._carrying = group.cancel_scope
                group.start_soon(self._write, stream)
                if self._direct is None:
                    await self._read(stream)
                elif anyio.get_cancelled_exc_class().__module__.startswith("asyncio"):
                    await self._read_by_callback(self._direct)
                else:
                    await self._read_directly(self._direct)
                group.cancel_scope.cancel()
        finally:
            self._carrying = None
            self._sending = 0
            self._is_idle = False
            self._rest = b""
            if self._direct is not None:
                self._direct.close()
                self._direct = None
            await anyio.aclose_forcefully(stream)
        self._written()

    @property
    def _is_carrying(self) -> bool:
        return self.machine.state not in (Session.STOPPED, Session.RECONNECTING)

    async def _read(self, stream: anyio.abc.ByteStream) -> None:
        while self._is_carrying:
            try:
                self._take(await stream.receive(READ_SIZE))
            except anyio.EndOfStream:
                self._take(b"")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
                self._cut(fault.__cause__ or fault)

    async def _read_directly(self, direct: socket.socket) -> None:
        while self._is_carrying:
            await anyio.wait_readable(direct)
            self._take_from(direct)

    async def _read_by_callback(self, direct: socket.socket) -> None:
        # A waiting task resumes a turn of the loop after a callback, and each wait registers the socket again: for one
        # post and its ack that is a third of the time.
        import asyncio  # a program under trio starts sooner without it

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def readable() -> None:
            try:
                self._take_from(direct)
            except BaseException as fault:
                loop.remove_reader(direct)
                if not ended.done():
                    ended.set_exception(fault)
            else:
                if not self._is_carrying and not ended.done():
                    loop.remove_reader(direct)
                    ended.set_result(None)

        loop.add_reader(direct, readable)
        try:
            await ended
        finally:
            loop.remove_reader(direct)

    def _take_from(self, direct: socket.socket) -> None:
        try:
            data = direct.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as fault:
            self._cut(fault)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if data:
            self.feed(self.machine.receive(data, now_ns()))
        else:
            self.feed(self.machine.cut("the broker closed the connection"))

    def _cut(self, fault: BaseException) -> None:
        self.feed(self.machine.cut(f"connection lost: {str(fault) or type(fault).__name__}"))

    async def _write(self, stream: anyio.abc.ByteStream) -> None:
        while True:
            data = self._rest or bytes(self.machine.data_to_send())
            self._rest = b""
            if not data:
                self._is_idle = True
                self._wanted = anyio.Event()
                await self._wanted.wait()
                continue
            self._sending = len(data)
            try:
                await stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the reader finds out why
            self._sending = 0
            self._written()

    async def _watch(self) -> None:
        while True:
            deadline_ns = self.machine.deadline_ns
            wait_s = TICK_S if deadline_ns is None else (deadline_ns - now_ns()) / SECOND_NS
            await anyio.sleep(min(max(wait_s, 0.0), TICK_S))
            self.feed(self.machine.tick(now_ns()))
