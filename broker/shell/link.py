"""One TCP connection: bytes in to a machine, bytes out from it.

Whatever one read delivers is handled in one step, in place, in a buffer that all links share. That is safe because
a step is a plain function: nothing else runs between the read and its end.
"""

from __future__ import annotations

import socket
from typing import Protocol

__all__ = ["READ_BYTES", "Link", "Machine"]

READ_BYTES = 256 << 10

# Not every peer knows heartbeats: the kernel notices after two minutes that the machine of a silent one is gone.
_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)


class Machine(Protocol):
    """The sans-I/O side of a link. Its properties are read at each event: let them be plain attributes."""

    def receive(self, data: memoryview) -> int:
        """Handle the whole events at the front of `data`; the number of bytes they took."""
        ...

    def take_output(self) -> bytearray:
        """What is to be sent now."""
        ...

    def output_size(self) -> int:
        """The number of bytes that `take_output` would give."""
        ...

    @property
    def backlog_bytes_max(self) -> int:
        """With more than this waiting to be sent, the peer is not read from."""
        ...

    def output_sent(self) -> None:
        """The peer has taken all that was given."""
        ...

    @property
    def finished(self) -> bool:
        """Return whether the link is to be closed."""
        ...

    @property
    def paused(self) -> bool:
        """Return whether it takes no input for now; it has output, or is finished, when it takes some again."""
        ...

    @property
    def event_bytes_max(self) -> int:
        """How long an event may become before it is whole."""
        ...


class Stream(Protocol):
    """What of a connected socket a link uses; see `socket.socket`."""

    def recv_into(self, view: memoryview, /) -> int: ...
    def send(self, data: bytearray | memoryview, /) -> int: ...
    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...
    def close(self) -> None: ...


class Link:
    """A connected socket, its descriptor `fd`, and its machine. `ended` says why the link is over, once it is."""

    __slots__ = ("_filled", "_held", "_long", "_scratch", "_stalled", "_unsent", "ended", "fd", "machine", "sock")

    def __init__(self, sock: Stream, machine: Machine, scratch: memoryview) -> None:
        sock.setblocking(False)
        for level, option, value in _OPTIONS:
            sock.setsockopt(level, option, value)
        self.sock = sock
        self.fd = sock.fileno()
        self.machine = machine
        self.ended: str | None = None
        self._scratch = scratch
        self._held = b""  # the front of an event that is not whole yet, or
        self._long: memoryview | None = None  # the buffer whose first `_filled` bytes are that
        self._filled = 0
        self._stalled = False  # what is held may be whole: the machine was paused
        self._unsent = memoryview(b"")

    @property
    def is_over(self) -> bool:
        """Return whether the link is to be closed."""
        return self.ended is not None

    @property
    def wants_write(self) -> bool:
        """Return whether it waits for the socket to take more."""
        return bool(self._unsent)

    @property
    def wants_read(self) -> bool:
        """Return whether it takes input: not while the session is paused, nor from a peer that does not read."""
        machine = self.machine
        return not machine.paused and len(self._unsent) + machine.output_size() <= machine.backlog_bytes_max

    def on_readable(self) -> None:
        """One read, one step."""
        view = self._long
        if view is None:
            view = self._scratch
            held = len(self._held)
            if held:
                view[:held] = self._held
        else:
            held = self._filled
        try:
            end = held + self.sock.recv_into(view[held:] if held else view)
        except BlockingIOError:
            return
        except OSError as error:
            self.ended = f"the connection failed: {error.strerror}"
            return
        if end == held:
            self.ended = "the peer closed the connection"
            return
        self._give(view, end)

    def _give(self, view: memoryview, end: int) -> None:
        """Let the machine have `view[:end]`, and keep what it does not take."""
        used = self.machine.receive(view[:end])
        if used < end:
            self._hold(view, used, end)
            # A peer that gathers small segments (Nagle's algorithm, as the official client does) keeps the rest of
            # the event until what it sent is acknowledged, and the kernel would wait 40 ms for data to go with that.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        else:
            self._held, self._long = b"", None
        self._stalled = self.machine.paused

    def _hold(self, view: memoryview, used: int, end: int) -> None:
        """Keep the front of an event, `view[used:end]`, until more of it comes.

        A long one has a buffer of its own, which doubles with what has arrived, not with what a header claims; so
        each byte is copied about twice, however small the reads.
        """
        rest = end - used
        if rest * 2 < len(self._scratch):
            self._held, self._long = bytes(view[used:end]), None
        elif view is self._long and used == 0 and end < len(view):
            self._filled = end
        else:
            longer = memoryview(bytearray(min(rest * 2, self.machine.event_bytes_max + READ_BYTES)))
            longer[:rest] = view[used:end]
            self._held, self._long, self._filled = b"", longer, rest

    def flush(self) -> bool:
        """Send what the machine has, as far as the socket takes it at once; the rest when it is writable.

        A machine that is finished gets this one chance to say why. False if the link waits to send more, or is over.
        """
        machine = self.machine
        if not self._unsent:
            data = machine.take_output()
            if data:
                sent = self._send(data)
                if sent < len(data):
                    self._unsent = memoryview(data)[sent:]
                else:
                    machine.output_sent()
        if machine.finished and self.ended is None:
            self.ended = "the session is over"
        if self._stalled and not machine.paused and self.ended is None:
            self._stalled = False
            view = memoryview(self._held) if self._long is None else self._long
            self._give(view, len(self._held) if self._long is None else self._filled)
        return not self._unsent and self.ended is None

    def on_writable(self) -> None:
        """Send more of what waits."""
        self._unsent = self._unsent[self._send(self._unsent) :]
        if not self._unsent:
            self.flush()
            if not self._unsent:
                self.machine.output_sent()

    def _send(self, data: bytearray | memoryview) -> int:
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.ended = f"the connection failed: {error.strerror}"
            return 0
