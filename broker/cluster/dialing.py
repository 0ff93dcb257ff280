"""Links that this broker begins: to its cluster's members, or from a proxy to the brokers above it.

The broker that dials authenticates itself, where it has credentials, and says who it is; the other answers with who it
is itself, or refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.cluster.authentication_client import AuthenticationClient
from broker.core.clock import Now
from broker.core.credentials import Credentials
from broker.core.received import received
from broker.core.session import Host, Session
from broker.core.session_ports import BrokerPeer
from broker.core.session_table import TRANSITIONS, SessionState, Trigger
from broker.core.timers import Timers
from formats.codes import EncodingType, EventType
from formats.control import ber
from formats.control.messages import BrokerResponse, ClientIdentity, NegotiationMessage, StatusCategory
from formats.errors import FormatError
from formats.wire.event import Frame, build_schema_event, schema_message

__all__ = ["REDIAL_MS", "REDIAL_MS_MAX", "REFUSED_MS", "DialedSession", "Dialer", "Redialer"]

# How long after a failure a broker is dialed again: at first, and when it goes on failing.
REDIAL_MS = 100
REDIAL_MS_MAX = 1_000
# After the other side has refused this one: that is not over in a moment.
REFUSED_MS = 5_000


class Dialer(Protocol):
    """For whom a session is dialed; `node_id` says which of the brokers that it dials."""

    @property
    def credentials(self) -> Credentials | None:
        """What the session authenticates by; None if it does not."""
        ...

    def introduce(self, session_id: int) -> ClientIdentity:
        """What the session says of this broker."""
        ...

    def accept(self, node_id: int, session: Session, answer: BrokerResponse) -> BrokerPeer | str:
        """What the session is for, now that the other side has said who it is; or what is wrong with it."""
        ...

    def failed(self, node_id: int, reason: str) -> None:
        """The session ended before both sides knew who the other is."""
        ...

    def refused(self, node_id: int, reason: str) -> None:
        """The broker is there, and not to be spoken with; `failed` follows."""
        ...


class DialedSession(Session):
    """A session that this broker began: it authenticates itself, says who it is, and waits for the answer."""

    def __init__(self, host: Host, session_id: int, address: str, dialer: Dialer, node_id: int) -> None:
        self._dialer = dialer
        self._node_id = node_id
        super().__init__(host, session_id, address)
        self._authentication = (
            None
            if dialer.credentials is None
            else AuthenticationClient(self, dialer.credentials, host.now, self._introduce, self._on_unauthenticated)
        )
        if self._authentication is None:
            self._introduce()
        else:
            self._authentication.begin()

    def _introduce(self) -> None:
        identity = self._dialer.introduce(self.session_id)
        self.send_event(build_schema_event(ber.encode(NegotiationMessage(choice=identity))))

    def _enter(self, state: SessionState) -> None:
        super()._enter(state)
        if state is SessionState.NEGOTIATING:
            self._on_event = [self._on_answer] * len(EventType)
        if state in (SessionState.NEGOTIATING, SessionState.RUNNING):
            self._on_event[EventType.AUTHENTICATION] = self._on_authentication

    def tick(self) -> None:
        super().tick()
        if self._authentication is not None and not self.finished:
            self._authentication.tick()

    def _on_authentication(self, data: memoryview, frame: Frame) -> None:
        if self._authentication is None:
            raise FormatError("EventHeader.type", frame.body, "this broker has not authenticated itself")
        self._authentication.on_response(data, frame)

    def _on_unauthenticated(self, reason: str) -> None:
        if self.state is SessionState.NEGOTIATING:
            self._dialer.refused(self._node_id, reason)
        self.end(reason)

    def end(self, reason: str, *, lost: bool = True) -> None:
        was_unknown = self.state is SessionState.NEGOTIATING
        super().end(reason, lost=lost)
        if was_unknown:
            self._dialer.failed(self._node_id, reason)

    def _on_answer(self, data: memoryview, frame: Frame) -> None:
        if frame.type != EventType.CONTROL:
            raise FormatError("EventHeader.type", frame.body, "a broker that is dialed answers with its identity")
        body = schema_message(data, frame.body, frame.end)
        answer = received(NegotiationMessage, body, EncodingType.BER).choice
        if not isinstance(answer, BrokerResponse):
            raise FormatError("NegotiationMessage", frame.body, "a broker that is dialed answers")
        if answer.result.category is StatusCategory.SUCCESS:
            accepted = self._dialer.accept(self._node_id, self, answer)
        else:
            accepted = f"refused this node: {answer.result.message}"
        if isinstance(accepted, str):
            self._dialer.refused(self._node_id, accepted)
            self.end(accepted)
            return
        identity = answer.broker_identity
        self.description = f"{identity.process_name}:{identity.pid}@{self.description}"
        self._broker = accepted
        self._enter(TRANSITIONS[self.state, Trigger.IDENTIFIED])
        accepted.begun()


class Redialer:
    """Dials again those that are wanted, after a while. `faults` says why a broker cannot be linked to, as long."""

    def __init__(
        self, now: Now, timers: Timers, dial: Callable[[int], None], wants: Callable[[int], bool], delay_ms_max: int
    ) -> None:
        self._now = now
        self._timers = timers
        self._dial = dial
        self._wants = wants
        self._delay_ms_max = delay_ms_max
        self._delays_ms: dict[int, int] = {}
        self.faults: dict[int, str] = {}

    def failed(self, node_id: int, reason: str) -> bool:
        """A link could not be made, or was lost; whether the reason is another than before."""
        delay_ms = self._delays_ms.get(node_id, REDIAL_MS)
        self._delays_ms[node_id] = max(delay_ms, min(delay_ms * 2, self._delay_ms_max))
        self._timers.at(self._now.ms + delay_ms, lambda: self._redial(node_id))
        is_news = self.faults.get(node_id) != reason
        self.faults[node_id] = reason
        return is_news

    def refused(self, node_id: int, reason: str) -> None:
        """The other side has refused this one: it is left alone for a longer while."""
        self.faults[node_id] = reason
        self._delays_ms[node_id] = REFUSED_MS

    def begun(self, node_id: int) -> None:
        """The link is there."""
        self._delays_ms.pop(node_id, None)
        self.faults.pop(node_id, None)

    def _redial(self, node_id: int) -> None:
        if self._wants(node_id):
            self._dial(node_id)
