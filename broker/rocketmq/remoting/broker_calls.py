"""Connections by which a controller or a nameserver notifies brokers of changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.rocketmq.remoting.session import Service, Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["BrokerCalls", "Dial", "Open", "refuse"]

log = logging.getLogger("broker.rocketmq.calls")

# The notice has arrived by then, or the broker asks by itself.
CALL_MS: Final = 3_000
CALLS_MAX: Final = 1_000

# Connects to HOST:PORT; calls one of the two functions later.
Dial = Callable[[str, Callable[[str], Session], Callable[[str], None]], None]
Open = Callable[[str, Service], Session]


def refuse(frame: Frame, session: Session) -> None:
    """Refuse a request on a connection that only sends requests; ignore answers."""
    if not frame.is_response:
        text = f" request type {frame.code} not supported"
        session.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))


class BrokerCalls:
    """Connections to brokers, one per notice, closed after CALL_MS.

    A lost notice does no harm: brokers ask by themselves every few seconds.
    """

    def __init__(self, dial: Dial, open_session: Open) -> None:
        self._dial = dial
        self._open_session = open_session
        self._dialing = 0
        self._open: dict[Session, int] = {}

    def tell(self, address: str, frame: Frame, now_ms: int) -> None:
        if self._dialing + len(self._open) >= CALLS_MAX:
            log.warning("broker %s is not notified of a change: %d others are", address, CALLS_MAX)
            return

        def connected(where: str) -> Session:
            self._dialing -= 1
            session = self._open_session(where, self)
            self._open[session] = now_ms + CALL_MS
            session.ask(frame, one_way=True)
            return session

        def failed(reason: str) -> None:
            self._dialing -= 1
            log.info("broker %s is not notified of a change: %s", address, reason)

        self._dialing += 1
        self._dial(address, connected, failed)

    def tick(self, now_ms: int) -> None:
        for session in [session for session, until_ms in self._open.items() if now_ms >= until_ms]:
            session.give_up("the broker was notified")

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        refuse(frame, session)

    def disconnected(self, session: Session) -> None:
        self._open.pop(session, None)
