# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""One TCP connection: input to a machine, and output from it.

The data of one read is handled in one step, in place, in a buffer that all links share: nothing else runs before the
end of a step.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from broker.common.standing import Standing
from broker.shell.connections.account import Account
from broker.shell.host.calls import HOST, KEEP_ALIVE

__all__ = ["READ_BYTES", "Link", "Machine"]

READ_BYTES = 256 << 10
# A peer on the same host reads while the kernel copies: one unbounded call would send an answer of any size.
SEND_BYTES: Final = 1 << 20

_STRANGER: Final = int(Standing.STRANGER)
_PEER: Final = int(Standing.PEER)

_OPTIONS = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *KEEP_ALIVE)


class Machine(Protocol):
    """The sans-I/O side of a link. Its properties are read at each event and should be plain attributes."""

    def receive(self, data: memoryview) -> int:
        """Handle the whole events at the front of `data`; return the number of bytes they took."""
        ...

    def take_output(self) -> bytearray: ...

    def output_size(self) -> int:
        """Number of bytes that `take_output` would return."""
        ...

    @property
    def backlog_bytes_max(self) -> int:
        """Unsent output above which the peer is not read from, in bytes."""
        ...

    def output_sent(self) -> None: ...

    @property
    def finished(self) -> bool: ...

    @property
    def paused(self) -> bool:
        """True if it takes no input for now; it has output, or is finished, when it takes input again."""
        ...

    @property
    def input_can_wait(self) -> bool:
        """True if no peer waits for the effect of the last input, and more like it may be read a moment later."""
        ...

    @property
    def event_bytes_max(self) -> int:
        """Maximum size of an event, in bytes; the size of the incomplete event, if it is known."""
        ...

    @property
    def keeps_more(self) -> bool:
        """True if `memory_size` may exceed 0 after `take_output` has returned output. Constant."""
        ...

    @property
    def standing(self) -> int:
        """The peer's `broker.common.standing.Standing`."""
        ...

    def memory_size(self) -> int:
        """Number of bytes that the machine holds: its output, and incomplete input that it has taken."""
        ...


class LinkSocket(Protocol):
    """The methods of a connected socket that a link uses."""

    def recv_into(self, view: memoryview, /) -> int: ...
    def send(self, data: bytearray | memoryview, /) -> int: ...
    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...
    def close(self) -> None: ...


class Link:
    """A connected socket, its descriptor `fd`, and its machine. `ended` is the reason for the link's end, once over.

    `is_patient` and `read_ms`, the time of its last read, are for `broker.shell.loop.rounds`. `size` is the memory of
    the link and its machine as the `account` has it; without an account it is not counted. An accepted connection comes
    from `address`.
    """

    __slots__ = (
        "_account",
        "_filled",
        "_held",
        "_keeps_more",
        "_long",
        "_overhead",
        "_scratch",
        "_sending",
        "_stalled",
        "_unsent",
        "address",
        "ended",
        "fd",
        "is_patient",
        "machine",
        "owes_acknowledgment",
        "read_ms",
        "resumed",
        "size",
        "sock",
    )

    def __init__(
        self, sock: LinkSocket, machine: Machine, scratch: memoryview, account: Account | None = None, address: str = ""
    ) -> None:
        sock.setblocking(False)
        for level, option, value in _OPTIONS:
            sock.setsockopt(level, option, value)
        self.sock = sock
        self.fd = sock.fileno()
        self.machine = machine
        self.ended: str | None = None
        self.owes_acknowledgment = False
        self.is_patient = False
        self.read_ms = 0
        self.resumed = False  # `flush` has given held input to the machine
        self.address = address
        self.size = 0
        self._keeps_more = machine.keeps_more
        self._account = account
        self._overhead = 0  # memory that a stranger's connection itself takes, such as that of TLS
        self._scratch = scratch
        self._held = b""  # the front of an incomplete event, or
        self._long: memoryview | None = None  # the buffer whose first `_filled` bytes are that
        self._filled = 0
        self._stalled = False  # the held data may be complete: the machine was paused
        self._unsent = memoryview(b"")
        self._sending = 0  # size of the output of which `_unsent` is the rest

    @property
    def standing(self) -> int:
        return self.machine.standing

    @property
    def is_over(self) -> bool:
        """True if the link should be closed."""
        return self.ended is not None

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    @property
    def backlog(self) -> int:
        return len(self._unsent) + self.machine.output_size()

    @property
    def wants_read(self) -> bool:
        """True if it takes input: not while the session is paused, nor from a peer that does not read."""
        return not self.machine.paused and self.backlog <= self.machine.backlog_bytes_max

    def on_readable(self) -> bool:
        """Read once and let the machine take a step. Return False if there was nothing to read."""
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
            return False
        except OSError as error:
            self.ended = f"the connection failed: {error.strerror}"
            return True
        if end == held:
            self.ended = "the peer closed the connection"
            return True
        self._give(view, end)
        return True

    def _give(self, view: memoryview, end: int) -> None:
        used = self.machine.receive(view[:end])
        if used < end:
            self._hold(view, used, end)
            self.owes_acknowledgment = True
            self.count()
        else:
            self._held, self._long = b"", None
            if self.size:
                self.count()
        self._stalled = self.machine.paused

    def count(self) -> None:
        account = self._account
        if account is None:
            return
        machine, size = self.machine, 0
        standing = machine.standing
        if standing != _PEER:
            size = self._sending + machine.memory_size()
            size += len(self._held) if self._long is None else len(self._long)
            if standing == _STRANGER:
                size += self._overhead
        if size != self.size:
            account.set_size(self, size)

    def release(self) -> None:
        if self._account is not None and self.size:
            self._account.set_size(self, 0)

    def acknowledge(self) -> None:
        """Acknowledge the segments of an incomplete event now, unless data was sent since, which does so, too.

        A peer that collects small segments (Nagle's algorithm, as in the official client) holds back the rest of an
        event until its data is acknowledged, which the kernel would delay by 40 ms.
        """
        if self.owes_acknowledgment and self.ended is None:
            self.owes_acknowledgment = False
            HOST.acknowledge_at_once(self.sock)

    def _hold(self, view: memoryview, used: int, end: int) -> None:
        """Keep the front of an event, `view[used:end]`, until more of it arrives.

        A long event has its own buffer, which grows with the data received, not with the size in its header; each byte
        is copied about twice, however small the reads are.
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
        """Send the machine's output, as far as the socket takes it at once; the rest when it is writable.

        A finished machine gets this one chance to send its last output. Return False if the link must wait or is over.
        """
        machine, is_sent = self.machine, False
        if not self._unsent:
            data = machine.take_output()
            if data:
                is_sent = True
                sent = self._send(data)
                if sent < len(data):
                    self._unsent = memoryview(data)[sent:]
                    self._sending = len(data)
                else:
                    machine.output_sent()
        if machine.finished and self.ended is None:
            self.ended = "the session has ended"
        # Held input waits until the peer has read the output, since it may cause as much output again.
        if self._stalled and not self._unsent and not machine.paused and self.ended is None:
            self._stalled, self.resumed = False, True
            view = memoryview(self._held) if self._long is None else self._long
            self._give(view, len(self._held) if self._long is None else self._filled)
            self.acknowledge()
        if self.size or self._unsent or not is_sent or self._keeps_more:
            self.count()
        return not self._unsent and self.ended is None

    def on_writable(self) -> None:
        # Not in one expression: mypyc would evaluate a call within a slice of a view twice.
        sent = self._send(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._sending = 0
            self.flush()
            if not self._unsent:
                self.machine.output_sent()

    def _send(self, data: bytearray | memoryview) -> int:
        if len(data) > SEND_BYTES and not self.machine.finished:
            data = memoryview(data)[:SEND_BYTES]
        try:
            sent = self.sock.send(data)
            if sent:
                self.owes_acknowledgment = False
            return sent
        except BlockingIOError:
            return 0
        except OSError as error:
            self.ended = f"the connection failed: {error.strerror}"
            return 0
