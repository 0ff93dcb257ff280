"""A connection to another process by the remoting protocol: to a controller, or a slave's to its master.

Slaves ask their master for the data that is not in its log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.rocketmq.remoting.calls import Calls
from broker.rocketmq.remoting.proof import Proving
from broker.rocketmq.remoting.session import Service, Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["DialBroker", "MasterLink"]

log = logging.getLogger("broker.rocketmq.replication")

RETRY_MS: Final = 3_000

# Connects to HOST:PORT: one of the two functions is called, later.
DialBroker = Callable[[str, Callable[[str], Session], Callable[[str], None]], None]


class MasterLink:
    """The connection, reopened when it is lost; see `remoting.session.Service`. `seal` signs what is sent.

    `what` names the other end, for people. With a `secret`, it is connected once both ends have proved to know it.
    """

    def __init__(
        self,
        dial: DialBroker,
        open_session: Callable[[str, Service], Session],
        seal: Callable[[Frame], Frame],
        what: str = "the broker of master",
        secret: bytes | None = None,
    ) -> None:
        self._what = what
        self._secret = secret
        self._proving: Proving | None = None
        self.address: str | None = None
        self._dial = dial
        self._open_session = open_session
        self._seal = seal
        self._session: Session | None = None
        self._is_dialing = False
        self._dialed_ms: int | None = None
        self._reason = ""
        self._calls = Calls()

    @property
    def is_connected(self) -> bool:
        """Return whether requests can be sent."""
        return self._session is not None and self._proving is not None and self._proving.is_done

    @property
    def connection(self) -> object:
        """The connection of the moment, another object after each loss; None without one."""
        return self._session

    def follow(self, address: str) -> None:
        """Connect to this broker, HOST:PORT, from here on."""
        if address == self.address:
            return
        self.address = address
        self._dialed_ms = None
        if self._session is not None:
            self._session.give_up("another master is known")

    def close(self) -> None:
        """Close the connection, and open no other."""
        self.address = None
        if self._session is not None:
            self._session.give_up("it is not needed any more")

    def tell(self, request: Frame) -> None:
        """Send a request that has no answer, if it is connected."""
        if self._session is not None and self.is_connected:
            self._session.ask(self._seal(request), one_way=True)

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        """Send a request; `done` gets the answer, or None if there is none."""
        if self._session is None or not self.is_connected:
            done(None)
        else:
            self._calls.call(self._session, self._seal(request), now_ms, done)

    def tick(self, now_ms: int) -> None:
        """Connect, if it is not connected; give up unanswered requests that are too old."""
        self._calls.expire(now_ms)
        if self.address is None or self._session is not None or self._is_dialing:
            return
        if self._dialed_ms is None or not 0 <= now_ms - self._dialed_ms < RETRY_MS:
            self._dialed_ms = now_ms
            self._dial(self.address, self._connected, self._failed)
            # Set after the call: an address that cannot be dialed is not waited for.
            self._is_dialing = True

    def _connected(self, address: str) -> Session:
        self._is_dialing = False
        session = self._open_session(address, self)
        if address == self.address:
            self._session = session
            self._proving = Proving(self._secret, "", session, self._proven, self._failed)
        else:
            session.give_up("another master is known")
        return session

    def _proven(self) -> None:
        self._reason = ""

    def _failed(self, reason: str) -> None:
        self._is_dialing = False
        if reason != self._reason:
            self._reason = reason
            log.warning("%s %s cannot be reached: %s; trying again", self._what, self.address, reason)

    # -- see `remoting.session.Service`

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Leave every frame to `receive`."""
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Take an answer; a master asks nothing."""
        if self._proving is not None and self._proving.take(frame):
            return
        if frame.is_response:
            self._calls.answered(session, frame)
        else:
            text = f" request type {frame.code} not supported"
            session.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))

    def disconnected(self, session: Session) -> None:
        """Note that the connection is lost."""
        if session is self._session:
            self._session = None
        self._calls.disconnected(session)
