"""A connection to a master, a controller or a nameserver, reopened when it is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.rocketmq.remoting.broker_calls import Dial, Open, refuse
from broker.rocketmq.remoting.calls import Calls
from broker.rocketmq.remoting.proof import Proving
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Listener", "OtherEnd", "Outgoing"]


class OtherEnd(NamedTuple):
    """The other end: `what` names it for people, in `log`; it is dialed every `retry_ms`.

    `own_id` names this end in its proof of the secret. With `is_lenient`, an end that does not know such a proof needs
    none.
    """

    what: str
    log: logging.Logger
    retry_ms: int = 3_000
    own_id: str = ""
    is_lenient: bool = False


class Listener(NamedTuple):
    """Calls that report that the connection is `ready` or `lost`, and answers that nobody awaits."""

    ready: Callable[[], None] = lambda: None
    answered: Callable[[Frame], None] = lambda frame: None
    lost: Callable[[], None] = lambda: None


class Outgoing:
    """The connection; see `remoting.session.Service`. `seal` signs requests.

    With a `secret`, it is connected once both ends have proved that they know it.
    """

    def __init__(
        self,
        dial: Dial,
        open_session: Open,
        seal: Callable[[Frame], Frame],
        end: OtherEnd,
        secret: bytes | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.address: str | None = None
        self._dial = dial
        self._open_session = open_session
        self._seal = seal
        self._end = end
        self._secret = secret
        self._listener = listener or Listener()
        self._session: Session | None = None
        self._proving: Proving | None = None
        self._is_proven = self._is_dialing = False
        self._dialed_ms: int | None = None
        self._reason = ""
        self._calls = Calls()

    @property
    def is_connected(self) -> bool:
        return self._session is not None and self._is_proven

    @property
    def connection(self) -> object:
        """The present connection, another object after each loss; None without one."""
        return self._session

    def follow(self, address: str) -> None:
        if address == self.address:
            return
        self.address = address
        self._dialed_ms = None
        if self._session is not None:
            self._session.give_up("another master is known")

    def close(self) -> None:
        self.address = None
        if self._session is not None:
            self._session.give_up("it is not needed any more")

    def tell(self, request: Frame, *, one_way: bool = True) -> None:
        """Send a request if connected; the listener gets its answer, if any."""
        if self._session is not None and self._is_proven:
            self._session.ask(self._seal(request), one_way=one_way)

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        """Send a request; `done` gets the answer, or None."""
        if self._session is None or not self._is_proven:
            done(None)
        else:
            self._calls.call(self._session, self._seal(request), now_ms, done)

    def tick(self, now_ms: int) -> None:
        self._calls.expire(now_ms)
        if self.address is None or self._session is not None or self._is_dialing:
            return
        if self._dialed_ms is None or not 0 <= now_ms - self._dialed_ms < self._end.retry_ms:
            self._dialed_ms = now_ms
            self._is_dialing = True
            try:
                self._dial(self.address, partial(self._connected, self.address), self._failed)
            except BaseException:
                # An address that cannot be dialed is not awaited.
                self._is_dialing = False
                raise

    def _connected(self, dialed: str, address: str) -> Session:
        self._is_dialing = False
        session = self._open_session(address, self)
        if dialed == self.address:
            self._session, self._is_proven = session, False
            own_id, is_lenient = self._end.own_id, self._end.is_lenient
            self._proving = Proving(self._secret, own_id, session, self._proven, self._failed, is_lenient=is_lenient)
        else:
            session.give_up("another master is known")
        return session

    def _proven(self) -> None:
        self._is_proven = True
        self._reason = ""
        self._listener.ready()

    def _failed(self, reason: str) -> None:
        self._is_dialing = False
        if reason != self._reason:
            self._reason = reason
            what, log = self._end.what, self._end.log
            log.warning("%s %s cannot be reached: %s; trying again", what, self.address, reason)

    # -- see `remoting.session.Service`

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Take an answer, or refuse a request."""
        if self._proving is not None and self._proving.take(frame):
            return
        if frame.is_response and not self._calls.answered(session, frame):
            self._listener.answered(frame)
        refuse(frame, session)

    def disconnected(self, session: Session) -> None:
        is_own = session is self._session
        if is_own:
            self._session, self._proving, self._is_proven = None, None, False
        self._calls.disconnected(session)
        if is_own:
            self._listener.lost()
