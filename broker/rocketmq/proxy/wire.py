"""The connection to one address, made when there is something to ask, and the requests that wait for their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
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

# An address that could not be reached is left alone for so long.
_RETRY_MS: Final = 500
# The bounds on what waits: requests, and bytes that the other side does not take.
_REQUESTS_MAX: Final = 65_536
_OUTPUT_BYTES_MAX: Final = 32 << 20


class _Call(NamedTuple):
    """A request that was sent. The request itself is not kept: it may be large, and the answer late."""

    until_ms: int
    done: Done


class _Queued(NamedTuple):
    """A request that waits for the connection."""

    frame: Frame
    size: int
    call: _Call


class Events(NamedTuple):
    """The events of a connection: it is there, it is lost or cannot be made, and the other side asks something.

    `asked` returns whether the question was taken.
    """

    connected: Callable[[], None]
    lost: Callable[[], None]
    asked: Callable[[Frame], bool]


class Wire:
    """A connection, made anew when it is lost. See `remoting.session.Service`.

    `later` has something done after the step: nobody is answered while still asking.
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
        # What waits for the connection, and for answers.
        self._queued: list[_Queued] = []
        self._queued_bytes = 0
        self._calls: dict[int, _Call] = {}

    @property
    def is_idle(self) -> bool:
        """Return whether it is neither connected nor about to be."""
        return self._session is None and not self._is_dialing

    @property
    def waiting(self) -> int:
        """The number of requests that are not answered."""
        return len(self._queued) + len(self._calls)

    def ask(self, frame: Frame, until_ms: int, done: Done) -> None:
        """Send a request; `done` gets the answer, or what stands for it, never at once.

        To one that wants no answer, there is only what stands for it.
        """
        session = self._session
        waiting_bytes = self._queued_bytes if session is None else session.output_size()
        if self.waiting >= _REQUESTS_MAX or waiting_bytes > _OUTPUT_BYTES_MAX:
            self._refuse(done, ResponseCode.SYSTEM_BUSY, f"too much waits for {self.address}")
        elif session is not None:
            self._send(session, frame, _Call(until_ms, done))
        elif self._is_dialing:
            self._queue(frame, _Call(until_ms, done))
        elif self._refused_ms is not None and 0 <= self._now_ms() - self._refused_ms < _RETRY_MS:
            self._refuse(done, UNREACHABLE, f"{self.address} cannot be reached: {self._reason}")
        else:
            self._queue(frame, _Call(until_ms, done))
            self._is_dialing = True
            self._dial(self._connected, self._failed)

    def _send(self, session: Session, frame: Frame, call: _Call) -> None:
        try:
            number = session.ask(frame, one_way=frame.is_one_way, version=frame.version or VERSION)
        except ValueError as error:
            # A stranger's request, which is no reason to fail those of others over the same connection.
            self._refuse(call.done, ResponseCode.SYSTEM_ERROR, f"the request cannot be handed on: {error}")
            return
        if not frame.is_one_way:
            self._calls[number] = call

    def _queue(self, frame: Frame, call: _Call) -> None:
        # The body may be valid for the moment only.
        self._append(_Queued(frame._replace(body=bytes(frame.body)), size_in_memory(frame), call))

    def _append(self, queued: _Queued) -> None:
        self._queued.append(queued)
        self._queued_bytes += queued.size

    def _take_queued(self) -> list[_Queued]:
        queued, self._queued, self._queued_bytes = self._queued, [], 0
        return queued

    def tell(self, frame: Frame) -> None:
        """Send a request that is not answered, if there is a connection."""
        if self._session is not None:
            self._session.ask(frame, one_way=True)

    def answer(self, request: Frame, answer: Frame) -> None:
        """Answer what the other side has asked, if it is there."""
        if self._session is not None:
            self._session.answer(request, answer)

    def _refuse(self, done: Done, code: int, text: str) -> None:
        self._later(lambda: done(not_asked(code, text)))

    def _connected(self, address: str) -> Session:
        self._is_dialing, self._refused_ms, self._reason = False, None, ""
        self._session = session = self._open_session(address, self)
        if self._is_left:
            # Nobody waits for it any more.
            session.give_up("who dialed is gone")
        for queued in self._take_queued():
            self._send(session, queued.frame, queued.call)
        self._events.connected()
        return session

    def _failed(self, reason: str) -> None:
        self._is_dialing, self._refused_ms = False, self._now_ms()
        if reason != self._reason:
            self._reason = reason
            log.warning("%s cannot be reached: %s", self.address, reason)
        calls = [queued.call for queued in self._take_queued()]
        self._events.lost()
        _fail(calls, UNREACHABLE, f"{self.address} cannot be reached: {reason}")

    def expire(self, now_ms: int) -> None:
        """Give up requests whose time is over."""
        late = [number for number, call in self._calls.items() if call.until_ms <= now_ms]
        calls = [self._calls.pop(number) for number in late]
        for queued in self._take_queued():
            if queued.call.until_ms <= now_ms:
                calls.append(queued.call)
            else:
                self._append(queued)
        _fail(calls, NO_ANSWER, f"{self.address} does not answer in time")

    def leave(self, reason: str = "the proxy stops") -> None:
        """Close the connection: whoever asks over it is gone."""
        self._is_left = True
        if self._session is not None:
            self._session.give_up(reason)

    # -- see `remoting.session.Service`

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Leave every frame to `receive`."""
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Take an answer, or a question."""
        if frame.is_response:
            call = self._calls.pop(frame.opaque, None)
            if call is not None:
                call.done(frame)
        elif not self._events.asked(frame) and not frame.is_one_way:
            text = f"a proxy is not asked this ({frame.code})"
            session.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))

    def disconnected(self, session: Session) -> None:
        """The connection is lost."""
        if session is not self._session:
            return
        self._session = None
        calls, self._calls = list(self._calls.values()), {}
        if calls and not self._is_left:
            log.warning("the connection to %s is lost, with %d requests: %s", self.address, len(calls), session.reason)
        self._events.lost()
        _fail(calls, UNREACHABLE, f"the connection to {self.address} is lost")


def _fail(calls: list[_Call], code: int, text: str) -> None:
    for call in calls:
        call.done(not_asked(code, text))
