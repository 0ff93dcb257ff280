"""A controller's own connections: to the other controllers, and to the brokers that it tells of a new master."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.rocketmq.remoting.session import Service, Session
from formats.rocketmq.codes import ResponseCode
from formats.rocketmq.frame import Frame

__all__ = ["BrokerCalls", "Dial", "PeerLink"]

log = logging.getLogger("broker.rocketmq.controller")

RETRY_MS: Final = 500
# What a broker was told has arrived by then, or it asks by itself.
CALL_MS: Final = 3_000
CALLS_MAX: Final = 1_000

# Connects to HOST:PORT: one of the two functions is called, later.
Dial = Callable[[str, Callable[[str], Session], Callable[[str], None]], None]
Open = Callable[[str, Service], Session]


def _refuse(frame: Frame, session: Session) -> None:
    """Answer a request to who asks only; answers to that are passed over."""
    if not frame.is_response:
        text = f" request type {frame.code} not supported"
        session.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))


class PeerLink:
    """The connection to another controller, made anew when it is lost; see `remoting.session.Service`."""

    def __init__(self, address: str, dial: Dial, open_session: Open) -> None:
        self._address = address
        self._dial = dial
        self._open_session = open_session
        self._session: Session | None = None
        self._is_dialing = False
        self._dialed_ms: int | None = None
        self._reason = ""

    def send(self, frame: Frame) -> None:
        """Send what wants no answer, or drop it if there is no connection."""
        if self._session is not None:
            self._session.ask(frame, one_way=True)

    def tick(self, now_ms: int) -> None:
        """Connect, if it is not connected."""
        if self._session is not None or self._is_dialing:
            return
        if self._dialed_ms is None or now_ms - self._dialed_ms >= RETRY_MS:
            self._dialed_ms = now_ms
            self._is_dialing = True
            self._dial(self._address, self._connected, self._failed)

    def _connected(self, address: str) -> Session:
        self._is_dialing = False
        self._reason = ""
        self._session = self._open_session(address, self)
        return self._session

    def _failed(self, reason: str) -> None:
        self._is_dialing = False
        if reason != self._reason:
            self._reason = reason
            log.warning("controller %s cannot be reached: %s; trying again", self._address, reason)

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Leave every frame to `receive`."""
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Refuse requests: controllers connect to who they ask."""
        if frame.is_response and frame.code != ResponseCode.SUCCESS and frame.remark != self._reason:
            self._reason = frame.remark or ""
            log.warning("controller %s refuses: %s", self._address, frame.remark)
        _refuse(frame, session)

    def disconnected(self, session: Session) -> None:
        """Note that the connection is lost."""
        if session is self._session:
            self._session = None


class BrokerCalls:
    """Connections to brokers, one for each thing that one is told, closed a while later. What cannot be told is lost:
    brokers ask by themselves every few seconds.
    """

    def __init__(self, dial: Dial, open_session: Open) -> None:
        self._dial = dial
        self._open_session = open_session
        self._dialing = 0
        self._open: dict[Session, int] = {}

    def tell(self, address: str, frame: Frame, now_ms: int) -> None:
        """Send a request that wants no answer to HOST:PORT."""
        if self._dialing + len(self._open) >= CALLS_MAX:
            log.warning("broker %s is not told of its new master: %d others are", address, CALLS_MAX)
            return

        def connected(where: str) -> Session:
            self._dialing -= 1
            session = self._open_session(where, self)
            self._open[session] = now_ms + CALL_MS
            session.ask(frame, one_way=True)
            return session

        def failed(reason: str) -> None:
            self._dialing -= 1
            log.info("broker %s is not told of its new master: %s", address, reason)

        self._dialing += 1
        self._dial(address, connected, failed)

    def tick(self, now_ms: int) -> None:
        """Close what is old."""
        for session in [session for session, until_ms in self._open.items() if now_ms >= until_ms]:
            session.give_up("the broker was told what it is to know")

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Leave every frame to `receive`."""
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Refuse requests."""
        _refuse(frame, session)

    def disconnected(self, session: Session) -> None:
        """Forget the connection."""
        self._open.pop(session, None)
