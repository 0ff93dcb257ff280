"""The connection to one address, made for the first request, and its unanswered requests."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple

from broker.rocketmq.administration.registration import Dial
from broker.rocketmq.grpc.brokers.backend import Done
from broker.rocketmq.grpc.statuses import NO_ANSWER, UNREACHABLE, not_asked
from broker.rocketmq.proxy.held_bytes import size_in_memory
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.versions import VERSION

__all__ = ["Events", "Wire"]

log = logging.getLogger("broker.rocketmq.proxy")

_NEVER_MS: Final = 1 << 62
# The pause after a failed attempt to connect.
_RETRY_MS: Final = 500
# Maximum number of unanswered requests, and of bytes that the other end has not taken.
_REQUESTS_MAX: Final = 65_536
_OUTPUT_BYTES_MAX: Final = 32 << 20
# Maximum of requests sent, or failed, in one step, which takes up to 5 ms.
_AT_ONCE: Final = 200


class _SentCall(NamedTuple):
    """A sent request. The frame is not kept: it may be large, and the answer late."""

    until_ms: int
    done: Done


class _Queued(NamedTuple):
    frame: Frame
    size: int
    call: _SentCall


class Events(NamedTuple):
    """Handlers of a connection's events: it is made, it is lost or cannot be made, and the other end sends a request.

    `asked` returns whether the request was accepted.
    """

    connected: Callable[[], None]
    lost: Callable[[], None]
    asked: Callable[[Frame], bool]


class Wire:
    """A connection, made again when it is lost. See `remoting.session.Service`.

    `later` calls a function after the step: no answer comes during the call of `ask`.
    """

    def __init__(
        self,
        address: str,
        dial: Dial,
        open_session: Callable[[str, Wire], Session],
        events: Events,
        later: Callable[[Callable[[], None]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.address = address
        self._dial = dial
        self._open_session = open_session
        self._events = events
        self._later = later
        self._now_ms = now_ms
        self._session: Session | None = None
        self._is_dialing = self._is_left = False
        self._refused_ms: int | None = None
        self._reason = ""
        # Requests that wait for the connection, and requests that wait for answers.
        self._queued: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._calls: dict[int, _SentCall] = {}
        # No request is late before this time.
        self._late_ms = _NEVER_MS

    @property
    def is_idle(self) -> bool:
        return self._session is None and not self._is_dialing

    @property
    def waiting(self) -> int:
        return len(self._queued) + len(self._calls)

    def ask(self, frame: Frame, until_ms: int, done: Done) -> None:
        """Send a request; `done` gets the answer, or the frame that replaces it, never at once.

        For a one-way request it gets only the latter.
        """
        session = self._session
        waiting_bytes = self._queued_bytes + (0 if session is None else session.output_size())
        if self.waiting >= _REQUESTS_MAX or waiting_bytes > _OUTPUT_BYTES_MAX:
            self._refuse(done, ResponseCode.SYSTEM_BUSY, f"too much waits for {self.address}")
        elif session is not None and not self._queued:
            self._send(session, frame, _SentCall(until_ms, done))
        elif session is not None or self._is_dialing:
            self._queue(frame, _SentCall(until_ms, done))
        elif self._refused_ms is not None and 0 <= self._now_ms() - self._refused_ms < _RETRY_MS:
            self._refuse(done, UNREACHABLE, f"{self.address} cannot be reached: {self._reason}")
        else:
            self._queue(frame, _SentCall(until_ms, done))
            self._is_dialing = True
            self._dial(self._connected, self._failed)

    def _send(self, session: Session, frame: Frame, call: _SentCall) -> None:
        try:
            number = session.ask(frame, one_way=frame.is_one_way, version=frame.version or VERSION)
        except ValueError as error:
            # A client's request must not fail those of others on the connection.
            self._refuse(call.done, ResponseCode.SYSTEM_ERROR, f"the request cannot be handed on: {error}")
            return
        if not frame.is_one_way:
            self._calls[number] = call
            self._late_ms = min(self._late_ms, call.until_ms)

    def _queue(self, frame: Frame, call: _SentCall) -> None:
        # The body may be valid during this call only.
        queued = _Queued(frame._replace(body=bytes(frame.body)), size_in_memory(frame), call)
        self._queued.append(queued)
        self._queued_bytes += queued.size
        self._late_ms = min(self._late_ms, call.until_ms)

    def _send_queued(self) -> None:
        """Send some of the requests that waited for the connection, and the others after later steps."""
        session = self._session
        if session is None:
            return
        for _ in range(min(len(self._queued), _AT_ONCE)):
            queued = self._queued.popleft()
            self._queued_bytes -= queued.size
            self._send(session, queued.frame, queued.call)
        if self._queued:
            self._later(self._send_queued)

    def _take_queued(self) -> list[_SentCall]:
        calls = [queued.call for queued in self._queued]
        self._queued.clear()
        self._queued_bytes = 0
        return calls

    def _fail(self, calls: deque[_SentCall], code: int, text: str) -> None:
        for _ in range(min(len(calls), _AT_ONCE)):
            calls.popleft().done(not_asked(code, text))
        if calls:
            self._later(lambda: self._fail(calls, code, text))

    def tell(self, frame: Frame) -> None:
        """Send a one-way request, if connected."""
        if self._session is not None:
            self._session.ask(frame, one_way=True)

    def answer(self, request: Frame, answer: Frame) -> None:
        """Answer a request of the other end, if connected."""
        if self._session is not None:
            self._session.answer(request, answer)

    def _refuse(self, done: Done, code: int, text: str) -> None:
        self._later(lambda: done(not_asked(code, text)))

    def _connected(self, address: str) -> Session:
        self._is_dialing, self._refused_ms, self._reason = False, None, ""
        self._session = session = self._open_session(address, self)
        if self._is_left:
            # Nobody awaits it any more.
            session.give_up("who dialed is gone")
        self._send_queued()
        self._events.connected()
        return session

    def _failed(self, reason: str) -> None:
        self._is_dialing, self._refused_ms = False, self._now_ms()
        if reason != self._reason:
            self._reason = reason
            log.warning("%s cannot be reached: %s", self.address, reason)
        calls = deque(self._take_queued())
        self._events.lost()
        self._fail(calls, UNREACHABLE, f"{self.address} cannot be reached: {reason}")

    def expire(self, now_ms: int) -> None:
        if now_ms < self._late_ms:
            return
        late = [number for number, call in self._calls.items() if call.until_ms <= now_ms]
        calls = deque(self._calls.pop(number) for number in late)
        calls += [queued.call for queued in self._queued if queued.call.until_ms <= now_ms]
        self._queued = deque(queued for queued in self._queued if queued.call.until_ms > now_ms)
        self._queued_bytes = sum(queued.size for queued in self._queued)
        waiting = chain(self._calls.values(), (queued.call for queued in self._queued))
        self._late_ms = min((call.until_ms for call in waiting), default=_NEVER_MS)
        self._fail(calls, NO_ANSWER, f"{self.address} does not answer in time")

    def leave(self, reason: str = "the proxy stops") -> None:
        self._is_left = True
        if self._session is not None:
            self._session.give_up(reason)

    # -- see `remoting.session.Service`

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        if frame.is_response:
            call = self._calls.pop(frame.opaque, None)
            if call is not None:
                call.done(frame)
        elif not self._events.asked(frame) and not frame.is_one_way:
            text = f"a proxy is not asked this ({frame.code})"
            session.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))

    def disconnected(self, session: Session) -> None:
        if session is not self._session:
            return
        self._session = None
        calls = deque([*self._calls.values(), *self._take_queued()])
        self._calls = {}
        if calls and not self._is_left:
            log.warning("the connection to %s is lost, with %d requests: %s", self.address, len(calls), session.reason)
        self._events.lost()
        self._fail(calls, UNREACHABLE, f"the connection to {self.address} is lost")
