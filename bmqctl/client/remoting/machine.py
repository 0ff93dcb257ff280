"""The client's side of RocketMQ's remoting protocol, without I/O.

Requests go in with a context of the caller's and a deadline; bytes come out of `data_to_send`. The peer's bytes go into
`receive`, and each request's context comes out once: `Answered`, or `Unanswered` if its deadline has passed (`tick`) or
the connection is over.

    machine: Machine[str] = Machine()
    machine.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}, context="route", deadline_ns=10**10)
    stream.send_all(machine.data_to_send())
    for event in machine.receive(stream.receive(), now_ns):
        ...
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from formats.errors import FormatError
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import (
    FRAME_BYTES_MAX,
    Frame,
    FrameFlag,
    HeaderEncoding,
    LanguageCode,
    encode_frame,
)
from formats.rocketmq.remoting.frame import next_frame as read_frame
from formats.rocketmq.remoting.versions import VERSION
from formats.schema import Buffer

__all__ = ["Answered", "Asked", "Ended", "Event", "Machine", "State", "Unanswered"]

# The numbers of requests are Java ints, which wrap to 0.
OPAQUE_MAX = (1 << 31) - 1
_ONE_WAY = int(FrameFlag.ONE_WAY)
_RESPONSE = int(FrameFlag.RESPONSE)

C = TypeVar("C")


class Answered(NamedTuple, Generic[C]):
    """The answer to a request. The body of `frame` is a view of the received bytes."""

    context: C
    frame: Frame


class Unanswered(NamedTuple, Generic[C]):
    """A request that will not be answered any more. The peer may have carried it out."""

    context: C
    reason: str


class Asked(NamedTuple):
    """A request of the peer's; unless one-way, answer it with `Machine.answer`."""

    frame: Frame


class Ended(NamedTuple):
    """The end of the connection."""

    reason: str


Event = Answered[C] | Unanswered[C] | Asked | Ended


class State(Enum):
    """The state of a connection; `ENDED` is final."""

    OPEN = "open"
    ENDED = "ended"


class Machine(Generic[C]):
    """One connection to a nameserver or a broker."""

    def __init__(self, encoding: HeaderEncoding = HeaderEncoding.JSON, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.state = State.OPEN
        self._encoding = encoding
        self._bytes_max = bytes_max
        self._opaque = 0
        self._waiting: dict[int, C] = {}
        # Deadline and number; an answered request's entry stays until it comes to the front.
        self._deadlines: list[tuple[int, int]] = []
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._held = b""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def pending_size(self) -> int:
        return self._out_bytes

    @property
    def deadline_ns(self) -> int | None:
        """The time at which `tick` is due; None if nothing waits."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def request(
        self, code: int, fields: Mapping[str, str] | None, *, context: C, deadline_ns: int, body: Buffer = b""
    ) -> int:
        """Send a request with the deadline `deadline_ns` of its answer; return its number."""
        self._check_open()
        opaque = self._next_opaque()
        self._put(self._frame(code, opaque, 0, fields, body))
        self._waiting[opaque] = context
        heapq.heappush(self._deadlines, (deadline_ns, opaque))
        return opaque

    def notify(self, code: int, fields: Mapping[str, str] | None, body: Buffer = b"") -> None:
        self._check_open()
        self._put(self._frame(code, self._next_opaque(), _ONE_WAY, fields, body))

    def answer(self, asked: Frame, code: int, remark: str | None = None, body: Buffer = b"") -> None:
        """Answer a request of the peer's in its encoding; a one-way request has no answer."""
        if asked.is_one_way or self.state is State.ENDED:
            return
        frame = self._frame(code, asked.opaque, _RESPONSE, None, body)
        self._put(frame._replace(remark=remark, encoding=asked.encoding))

    def refuse(self, asked: Frame) -> None:
        self.answer(asked, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {asked.code} is not supported")

    def receive(self, data: bytes) -> list[Event[C]]:
        """Process received bytes. A malformed frame ends the connection."""
        if self.state is State.ENDED:
            return []
        whole = self._held + data if self._held else data
        view, at, end = memoryview(whole), 0, len(whole)
        events: list[Event[C]] = []
        try:
            while (found := read_frame(view, at, end, self._bytes_max)) is not None:
                frame, at = found
                if not frame.is_response:
                    events.append(Asked(frame))
                elif frame.opaque in self._waiting:
                    events.append(Answered(self._waiting.pop(frame.opaque), frame))
                # Otherwise it is the answer to a request that was given up.
        except FormatError as fault:
            return events + self.lost(f"the peer sent a malformed frame: {fault}")
        self._held = whole[at:] if at else whole
        return events

    def tick(self, now_ns: int) -> list[Event[C]]:
        events: list[Event[C]] = []
        while (deadline_ns := self.deadline_ns) is not None and deadline_ns <= now_ns:
            _, opaque = heapq.heappop(self._deadlines)
            events.append(Unanswered(self._waiting.pop(opaque), "timed out"))
        return events

    def lost(self, reason: str) -> list[Event[C]]:
        """End the connection; give up all requests, in order."""
        if self.state is State.ENDED:
            return []
        self.state = State.ENDED
        waiting, self._waiting = self._waiting, {}
        self._deadlines.clear()
        self._out.clear()
        self._out_bytes = 0
        self._held = b""
        return [*(Unanswered(context, reason) for context in waiting.values()), Ended(reason)]

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        return data

    def _check_open(self) -> None:
        if self.state is State.ENDED:
            raise RuntimeError("the connection has ended")

    def _next_opaque(self) -> int:
        opaque = self._opaque
        while opaque in self._waiting:
            opaque = 0 if opaque == OPAQUE_MAX else opaque + 1
        self._opaque = 0 if opaque == OPAQUE_MAX else opaque + 1
        return opaque

    def _frame(self, code: int, opaque: int, flag: int, fields: Mapping[str, str] | None, body: Buffer) -> Frame:
        ext_fields = None if fields is None else dict(fields)
        return Frame(code, opaque, flag, None, ext_fields, body, LanguageCode.PYTHON, VERSION, self._encoding)

    def _put(self, frame: Frame) -> None:
        data = encode_frame(frame)
        self._out.append(data)
        self._out_bytes += len(data)
