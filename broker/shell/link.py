"""One TCP connection: bytes in to a machine, bytes out from it.

Links read with plain non-blocking sockets: whatever one read delivers is handled in one step, in place, in a
buffer that all links share. That is safe because nothing awaits between the read and the end of the step.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

__all__ = ["Link", "Machine"]

READ_BYTES = 256 << 10

# A peer that lets this much wait is not read from until it has taken some.
BACKLOG_BYTES_MAX = 4 << 20


class Machine(Protocol):
    """The sans-I/O side of a link."""

    def receive(self, data: memoryview) -> int:
        """Handle the whole events at the front of `data`; the number of bytes they took."""
        ...

    def take_output(self) -> bytearray:
        """What is to be sent now."""
        ...

    def output_size(self) -> int:
        """The number of bytes that `take_output` would give."""
        ...

    def output_sent(self) -> None:
        """The peer has taken all that was given."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the link is to be closed once its output is sent."""
        ...

    @property
    def event_bytes_max(self) -> int:
        """How long an event may become before it is whole."""
        ...


class Link:
    """A connected socket and its machine."""

    def __init__(self, sock: socket.socket, machine: Machine, scratch: bytearray) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._machine = machine
        self._scratch = scratch
        self._held = b""  # the front of an event that is not whole yet
        self._unsent = memoryview(b"")
        self._writable = trio.Event()
        self._drained = trio.Event()
        self._scope = trio.CancelScope()
        self._ended = "the peer closed the connection"

    async def run(self, before_step: Callable[[], None], after_step: Callable[[], None]) -> str:
        """Serve the link until either side or the network ends it; which it was."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guard, self._write, after_step)
                await self._guard(self._read, before_step, after_step)
                # The peer has closed its side; what it is still owed cannot be delivered.
                self._scope.cancel()
        return self._ended

    async def _guard(self, work: Callable[..., Awaitable[None]], *args: Callable[[], None]) -> None:
        try:
            await work(*args)
        except OSError as error:
            self._ended = f"the connection failed: {error.strerror}"
            self._scope.cancel()

    async def _read(self, before_step: Callable[[], None], after_step: Callable[[], None]) -> None:
        sock, machine = self._sock, self._machine
        while not machine.finished:
            if self._backlog() > BACKLOG_BYTES_MAX:
                self._drained = trio.Event()
                await self._drained.wait()
                continue
            await trio.lowlevel.wait_readable(sock)
            held = len(self._held)
            scratch = self._room(held)
            with memoryview(scratch) as view:
                view[:held] = self._held
                try:
                    count = sock.recv_into(view[held:])
                except BlockingIOError:
                    continue
                if count == 0:
                    return
                end = held + count
                before_step()
                used = machine.receive(view[:end])
                self._held = bytes(view[used:end])
            after_step()

    def _room(self, held: int) -> bytearray:
        """A buffer with place behind `held` bytes: the shared one, or a longer one for a long event.

        It doubles with what has arrived, not with what a header claims.
        """
        if held * 2 < len(self._scratch):
            return self._scratch
        return bytearray(min(held * 2, self._machine.event_bytes_max + READ_BYTES))

    def _backlog(self) -> int:
        return len(self._unsent) + self._machine.output_size()

    def flush(self) -> None:
        """Send what the machine has, as far as the socket takes it at once; the writer sends the rest.

        A machine that is finished gets this one chance to say why.
        """
        if not self._unsent and self._machine.output_size():
            data = self._machine.take_output()
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._ended = f"the connection failed: {error.strerror}"
                self.close()
                return
            if sent < len(data):
                self._unsent = memoryview(data)[sent:]
                self._writable.set()
            else:
                self._machine.output_sent()
        if self._machine.finished:
            self.close()

    async def _write(self, after_step: Callable[[], None]) -> None:
        while True:
            await self._writable.wait()
            self._writable = trio.Event()
            while self._unsent:
                await trio.lowlevel.wait_writable(self._sock)
                try:
                    sent = self._sock.send(self._unsent)
                except BlockingIOError:
                    continue
                self._unsent = self._unsent[sent:]
                if not self._unsent and self._machine.output_size():
                    self._unsent = memoryview(self._machine.take_output())
            self._drained.set()
            self._machine.output_sent()
            after_step()

    def close(self) -> None:
        """End the link now."""
        self._scope.cancel()
