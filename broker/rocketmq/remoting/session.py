"""One connection that speaks the remoting protocol, without its socket.

It takes frames out of what arrives, hands each to the service that it belongs to, and gathers what is to be sent.
Whoever sends something that is no frame, or a frame that is too large, has its connection closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from formats.errors import FormatError
from formats.rocketmq.frame import FRAME_BYTES_MAX, Frame, FrameFlag, encode_frame, next_frame
from formats.rocketmq.hosts import Host
from formats.rocketmq.versions import VERSION

__all__ = ["IDLE_MS", "OUTPUT_BYTES_MAX", "Gate", "Service", "Session"]

log = logging.getLogger("broker.rocketmq.session")

# A connection on which nothing moves for so long is closed (source: NettyServerConfig, 120 s).
IDLE_MS: Final = 120_000
# Nobody is read from while so much waits to be sent to it, and who leaves so much more is given up.
BACKLOG_BYTES: Final = 1 << 20
OUTPUT_BYTES_MAX: Final = 64 << 20

_INT_MAX: Final = 0x7FFFFFFF
_RESPONSE: Final = int(FrameFlag.RESPONSE)


class Service(Protocol):
    """The receiver of a connection's requests: a nameserver or a broker."""

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Take requests of a kind that the service reads by itself from the front of `data[at:end]`, as far as there
        are any; where the first other frame begins, or one that is not whole.
        """
        ...

    def receive(self, frame: Frame, session: Session) -> None:
        """Take a request or an answer. The frame's body is valid during this call only."""
        ...

    def disconnected(self, session: Session) -> None:
        """The connection is closed."""
        ...


class Gate(Protocol):
    """Decides when output may be sent; see `broker.rocketmq.flush_gate`."""

    def take(self, holder: Session, data: bytearray) -> bytearray:
        """Return what can be sent at once; the rest is handed to `Session.pass_on` later."""
        ...


class Session:
    """A connection; `host` is where it comes from. `changed` is told that there is something to send.

    `now_ms` is a clock that never goes back. What is sent passes `gate`, if there is one.
    """

    def __init__(
        self,
        session_id: int,
        host: Host,
        service: Service,
        changed: Callable[[Session], None],
        now_ms: Callable[[], int],
        gate: Gate | None = None,
    ) -> None:
        self.session_id = session_id
        self.host = host
        self._service = service
        self._changed = changed
        self._now_ms = now_ms
        self._gate = gate
        self._output = bytearray()
        # What has passed the gate, and the size of what waits there.
        self._passed = bytearray()
        self._held_bytes = 0
        self._heard_ms = now_ms()
        self._opaque = 0
        self._finished = False
        self.reason = ""

    @property
    def description(self) -> str:
        """The session, for people."""
        return f"{self.host}#{self.session_id}"

    # -- bytes; see `broker.shell.link.Machine`

    def receive(self, data: memoryview) -> int:
        """Handle the whole frames at the front of `data`; the number of bytes that they took."""
        if self._finished:
            return len(data)
        self._heard_ms = self._now_ms()
        at, end, take = 0, len(data), self._service.take
        try:
            while not self._finished:
                at = take(data, at, end, self)
                found = next_frame(data, at, end)
                if found is None:
                    break
                frame, at = found
                self._service.receive(frame, self)
        except FormatError as error:
            self.give_up(f"it sent an invalid frame: {error}")
            return end
        return at

    def take_output(self) -> bytearray:
        """Bytes that are to be sent now."""
        output, self._output = self._output, bytearray()
        if self._gate is not None:
            return self._take_passed(self._gate, output)
        return output

    def _take_passed(self, gate: Gate, output: bytearray) -> bytearray:
        if output:
            size = len(output)
            self._held_bytes += size
            passed = gate.take(self, output)
            if passed:
                self._held_bytes -= size
                self._passed += passed
        output, self._passed = self._passed, bytearray()
        return output

    def pass_on(self, data: bytearray, held_size: int) -> None:
        """Have data sent instead of so many bytes that waited at the gate."""
        self._held_bytes -= held_size
        if not self._finished:
            self._passed += data
            self._changed(self)

    def output_size(self) -> int:
        """The number of bytes that `take_output` would give, with those that wait at the gate."""
        return len(self._output) + len(self._passed) + self._held_bytes

    def output_sent(self) -> None:
        """The peer has taken all that was given."""
        self._heard_ms = self._now_ms()

    @property
    def backlog_bytes_max(self) -> int:
        """The number of bytes waiting to be sent above which nothing is read from the peer."""
        return BACKLOG_BYTES

    @property
    def finished(self) -> bool:
        """Return whether the connection is to be closed."""
        return self._finished

    @property
    def input_can_wait(self) -> bool:
        """Never: requests are answered."""
        return False

    @property
    def paused(self) -> bool:
        """Never: requests that wait for something do not hold up others."""
        return False

    @property
    def event_bytes_max(self) -> int:
        """The bound on the bytes of a frame that is not whole yet."""
        return FRAME_BYTES_MAX + 4

    # -- frames

    def send(self, frame: Frame) -> None:
        """Send a frame as it is."""
        self.send_bytes(encode_frame(frame))

    def send_bytes(self, data: bytes) -> None:
        """Send whole frames."""
        if self._finished:
            return
        self._output += data
        if len(self._output) > OUTPUT_BYTES_MAX:
            self.give_up(f"it does not read the {len(self._output)} bytes that wait for it")
        self._changed(self)

    def answer(self, request: Frame, answer: Frame) -> None:
        """Answer a request, in its encoding; not if it wants no answer."""
        if not request.is_one_way:
            code, _, _, remark, fields, body, language, _, _ = answer
            opaque, encoding = request.opaque, request.encoding
            self.send(Frame(code, opaque, _RESPONSE, remark, fields, body, language, VERSION, encoding))

    def ask(self, request: Frame, *, one_way: bool = False, version: int = VERSION) -> int:
        """Send a request; the number that its answer will have. `version` is that of whose request it is."""
        self._opaque = self._opaque + 1 & _INT_MAX
        flag = FrameFlag.ONE_WAY if one_way else 0
        self.send(request._replace(opaque=self._opaque, flag=flag, version=version))
        return self._opaque

    # -- the end

    def tick(self) -> None:
        """Give up a connection on which nothing moves."""
        if self._now_ms() - self._heard_ms > IDLE_MS:
            self.give_up(f"nothing was received from it for {IDLE_MS // 1000} s")

    def give_up(self, reason: str) -> None:
        """End at once; what has not been sent is dropped."""
        if self._finished:
            return
        self._finished = True
        self._output = bytearray()
        self.reason = reason
        log.info("%s: the connection is closed: %s", self.description, reason)
        self._changed(self)

    def end(self) -> None:
        """The connection is closed: the service hears of it."""
        self._finished = True
        self._output = bytearray()
        self._service.disconnected(self)
