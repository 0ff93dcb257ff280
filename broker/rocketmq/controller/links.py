"""A controller's connections to the other controllers."""

from __future__ import annotations

import logging
from typing import Final

from broker.rocketmq.remoting.broker_calls import Dial, Open, refuse
from broker.rocketmq.remoting.proof import Proving
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["ControllerLink"]

log = logging.getLogger("broker.rocketmq.controller")

RETRY_MS: Final = 500


class ControllerLink:
    """The connection to another controller, reopened when it is lost; see `remoting.session.Service`.

    With a `secret`, nothing is sent until both controllers have proved that they know it. `own_id` is this one's id.
    """

    def __init__(
        self, address: str, dial: Dial, open_session: Open, own_id: str = "", secret: bytes | None = None
    ) -> None:
        self._address = address
        self._own_id = own_id
        self._secret = secret
        self._proving: Proving | None = None
        self._dial = dial
        self._open_session = open_session
        self._session: Session | None = None
        self._is_dialing = False
        self._dialed_ms: int | None = None
        self._reason = ""

    def send(self, frame: Frame) -> None:
        """Send a one-way frame, or drop it if there is no connection."""
        if self._session is not None and self._proving is not None and self._proving.is_done:
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
        self._session = session = self._open_session(address, self)
        self._proving = Proving(self._secret, self._own_id, session, self._proven, self._failed)
        return session

    def _proven(self) -> None:
        self._reason = ""

    def _failed(self, reason: str) -> None:
        self._is_dialing = False
        if reason != self._reason:
            self._reason = reason
            log.warning("controller %s cannot be reached: %s; trying again", self._address, reason)

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Leave every frame to `receive`."""
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Refuse requests: controllers send them on connections that they have dialed."""
        if self._proving is not None and self._proving.take(frame):
            return
        if frame.is_response and frame.code != ResponseCode.SUCCESS and frame.remark != self._reason:
            self._reason = frame.remark or ""
            log.warning("controller %s refuses: %s", self._address, frame.remark)
        refuse(frame, session)

    def disconnected(self, session: Session) -> None:
        """Note that the connection is lost."""
        if session is self._session:
            self._session = None
