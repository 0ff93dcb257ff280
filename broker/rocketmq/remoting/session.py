"""One connection that speaks the remoting protocol, without its socket.

It extracts frames from the input, passes each to its service, and collects the output. It closes the connection of a
peer that sends anything else, or a frame that is too large.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Final, Protocol

from broker.common.standing import Standing
from broker.rocketmq.remoting.limits import LONG_HEADER_BYTES_MAX, SHORT_FRAME_BYTES_MAX, frame_bytes_max
from broker.rocketmq.remoting.step_time import StepTime
from formats.errors import FormatError
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, Frame, FrameFlag, encode_frame, next_frame
from formats.rocketmq.remoting.versions import VERSION

__all__ = ["IDLE_MS", "OUTPUT_BYTES_MAX", "Gate", "Service", "Session"]

log = logging.getLogger("broker.rocketmq.session")

# An idle connection is closed after this time (source: NettyServerConfig, 120 s).
IDLE_MS: Final = 120_000
# No more input is read while a peer leaves this much output unread; with another such amount it is given up.
BACKLOG_BYTES: Final = 1 << 20
OUTPUT_BYTES_MAX: Final = 64 << 20

# Maximum of own requests per connection whose answers may be long frames.
ASKED_MAX: Final = 1_024

_INT_MAX: Final = 0x7FFFFFFF
_RESPONSE: Final = int(FrameFlag.RESPONSE)
_STRANGER: Final = Standing.STRANGER
_CLIENT: Final = Standing.CLIENT
_LENGTHS: Final = struct.Struct(">II")
_LENGTHS_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_HEADER_LENGTH: Final = 0xFFFFFF


class Service(Protocol):
    """The receiver of a connection's requests: a nameserver or a broker."""

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Take requests of a kind that the service parses itself from the front of `data[at:end]`.

        Return where the first other or incomplete frame begins.
        """
        ...

    def receive(self, frame: Frame, session: Session) -> None:
        """Handle a request or an answer, whose body is valid during this call only."""
        ...

    def disconnected(self, session: Session) -> None: ...


class Gate(Protocol):
    """Decides when output may be sent; see `broker.rocketmq.flush_gate`."""

    def take(self, holder: Session, data: bytearray) -> bytearray:
        """Return the output that can be sent at once; the rest goes to `Session.pass_on` later."""
        ...


class Session:
    """A connection; `host` is the peer's. `changed` is called when there is output.

    `now_ms` is a clock that never goes back. Output passes `gate`, if any. `standing` is PEER for a connection that
    this node has dialed, which accepts long frames of any code. Requests beyond the time that `step_time` allows wait
    for a later step.
    """

    # Output at the gate is counted as soon as `take_output` returns nothing.
    keeps_more = False

    def __init__(
        self,
        session_id: int,
        host: Host,
        service: Service,
        changed: Callable[[Session], None],
        now_ms: Callable[[], int],
        gate: Gate | None = None,
        standing: Standing = Standing.STRANGER,
        step_time: StepTime | None = None,
    ) -> None:
        self.session_id = session_id
        self.host = host
        self._service = service
        self._changed = changed
        self._now_ms = now_ms
        self._gate = gate
        self._output = bytearray()
        # Output that has passed the gate, and the size of that which waits there.
        self._passed = bytearray()
        self._held_bytes = 0
        self._heard_ms = now_ms()
        self._opaque = 0
        self.standing = standing
        self._is_doubted = False
        # Requests wait until the peer has read answers.
        self._is_stopped = False
        # Requests wait until a later step.
        self._step_time = step_time
        self._gives_way = False
        # The size of the incomplete frame, and whether it was found long and allowed.
        self._pending_bytes = FRAME_BYTES_MAX + _LENGTH_BYTES
        self._is_judged = False
        self._asked: dict[int, None] = {}
        self._finished = False
        self.reason = ""

    @property
    def description(self) -> str:
        return f"{self.host}#{self.session_id}"

    # -- bytes; see `broker.shell.connections.link.Machine`

    def receive(self, data: memoryview) -> int:
        """Handle the whole frames at the front of `data`; return their size in bytes."""
        if self._finished:
            return len(data)
        self._heard_ms = self._now_ms()
        self._is_stopped = self._is_doubted = False
        at, end, service, step_time = 0, len(data), self._service, self._step_time
        until_ns = 0 if step_time is None else step_time.begin()
        try:
            while at < end and not self._finished:
                at = start = service.take(data, at, end, self)
                if at == end:
                    break
                found = next_frame(data, at, end)
                if found is None:
                    self._judge_front(data, at, end)
                    break
                frame, at = found
                if at - start > SHORT_FRAME_BYTES_MAX and not self._may_be_long(frame, at - start):
                    break
                if self._asked and frame.is_response:
                    self._asked.pop(frame.opaque, None)
                service.receive(frame, self)
                if len(self._output) + self._held_bytes > BACKLOG_BYTES:
                    self._is_stopped = True
                    break
                if step_time is not None and at < end and step_time.is_over(until_ns):
                    self._gives_way = True
                    step_time.give_way(self)
                    break
        except FormatError as error:
            self.give_up(f"it sent an invalid frame: {error}")
            return end
        if self.standing is _STRANGER and at and not self._is_doubted:
            self.standing = _CLIENT
        return at

    def _judge_front(self, data: memoryview, at: int, end: int) -> None:
        """Examine the front of an incomplete frame, and refuse a long one as soon as its code is known.

        Raises `FormatError` for a header that is too long.
        """
        size = end - at
        if size < _LENGTHS_BYTES:
            self._pending_bytes, self._is_judged = SHORT_FRAME_BYTES_MAX, False
            return
        length, word = _LENGTHS.unpack_from(data, at)
        self._pending_bytes = length + _LENGTH_BYTES
        if length <= SHORT_FRAME_BYTES_MAX:
            self._is_judged = False
            return
        header_size = word & _HEADER_LENGTH
        if header_size > LONG_HEADER_BYTES_MAX:
            text = f"{header_size} bytes are more than the {LONG_HEADER_BYTES_MAX} of a header before a long body"
            raise FormatError("Frame.header_length", at + 5, text)
        if self._is_judged or size < _LENGTHS_BYTES + header_size:
            return
        # Parse the header as that of a frame without a body.
        bare = bytearray(data[at : at + _LENGTHS_BYTES + header_size])
        _LENGTHS.pack_into(bare, 0, _LENGTH_BYTES + header_size, word)
        found = next_frame(memoryview(bare), 0, len(bare))
        self._is_judged = found is None or self._may_be_long(found[0], length + _LENGTH_BYTES)

    def _may_be_long(self, frame: Frame, size: int) -> bool:
        """Return whether a frame of this size is allowed for its code; end the session otherwise."""
        self._is_judged = False
        if self.standing == Standing.PEER:
            return True
        if frame.is_response:
            most = FRAME_BYTES_MAX if frame.opaque in self._asked else SHORT_FRAME_BYTES_MAX
        else:
            most = frame_bytes_max(frame.code)
        if size - _LENGTH_BYTES <= most:
            return True
        text = f"a frame with code {frame.code} has {size - _LENGTH_BYTES} bytes, more than {most}"
        if not frame.is_response:
            self.answer(frame, Frame(ResponseCode.SYSTEM_ERROR, 0, remark=text))
        self._finish(text)
        return False

    def doubt(self) -> None:
        """Leave the peer a stranger despite this request, which is refused or yet to be checked."""
        self._is_doubted = True

    def trust(self) -> None:
        if self.standing == Standing.STRANGER:
            self.standing = Standing.CLIENT

    def take_output(self) -> bytearray:
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
        """Send data in place of `held_size` bytes that waited at the gate."""
        self._held_bytes -= held_size
        if not self._finished:
            self._passed += data
            self._changed(self)

    def output_size(self) -> int:
        """Return the size of unsent output in bytes, including output that waits at the gate."""
        return len(self._output) + len(self._passed) + self._held_bytes

    def memory_size(self) -> int:
        """Return the size of the output. Incomplete input stays with the link."""
        return self.output_size()

    def output_sent(self) -> None:
        self._heard_ms = self._now_ms()

    @property
    def backlog_bytes_max(self) -> int:
        return BACKLOG_BYTES

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def input_can_wait(self) -> bool:
        """False: requests are answered."""
        return False

    @property
    def paused(self) -> bool:
        """True while the peer leaves more than `BACKLOG_BYTES` unread, and until a later step if time was short.

        Waiting requests do not pause a session.
        """
        return self._gives_way or (self._is_stopped and self.output_size() > BACKLOG_BYTES)

    def go_on(self) -> None:
        """Take input again, after other connections were read."""
        self._gives_way = False
        self._changed(self)

    @property
    def event_bytes_max(self) -> int:
        """The size of the incomplete frame, or an upper bound."""
        return self._pending_bytes

    # -- frames

    def send(self, frame: Frame) -> None:
        self.send_bytes(encode_frame(frame))

    def send_bytes(self, data: bytes) -> None:
        if self._finished:
            return
        self._output += data
        if len(self._output) > OUTPUT_BYTES_MAX:
            self.give_up(f"it does not read the {len(self._output)} bytes that wait for it")
        self._changed(self)

    def answer(self, request: Frame, answer: Frame) -> None:
        """Answer a request, in its encoding, unless it is one-way."""
        if not request.is_one_way:
            code, _, _, remark, fields, body, language, _, _ = answer
            opaque, encoding = request.opaque, request.encoding
            self.send(Frame(code, opaque, _RESPONSE, remark, fields, body, language, VERSION, encoding))

    def ask(self, request: Frame, *, one_way: bool = False, version: int = VERSION) -> int:
        """Send a request; return the number of its answer. `version` is the author's."""
        self._opaque = self._opaque + 1 & _INT_MAX
        flag = FrameFlag.ONE_WAY if one_way else 0
        if not one_way and self.standing != Standing.PEER:
            self._asked[self._opaque] = None
            if len(self._asked) > ASKED_MAX:
                del self._asked[next(iter(self._asked))]
        self.send(request._replace(opaque=self._opaque, flag=flag, version=version))
        return self._opaque

    # -- the end

    def tick(self) -> None:
        if self._now_ms() - self._heard_ms > IDLE_MS:
            self.give_up(f"nothing was received from it for {IDLE_MS // 1000} s")

    def give_up(self, reason: str) -> None:
        if not self._finished:
            self._output = bytearray()
            self._finish(reason)

    def _finish(self, reason: str) -> None:
        """End, after one attempt to send the output."""
        if self._finished:
            return
        self._finished = True
        self.reason = reason
        log.info("%s: the connection is closed: %s", self.description, reason)
        self._changed(self)

    def end(self) -> None:
        self._finished = True
        self._output = bytearray()
        self._service.disconnected(self)
