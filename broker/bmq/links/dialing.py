# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Outgoing links: to members of the cluster, or from a proxy to the brokers above it.

The dialing broker authenticates itself, if it has credentials, and sends its identity; the other answers with its own,
or refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from broker.bmq.core.received import received
from broker.bmq.session.authentication import AssumedCredential
from broker.bmq.session.credentials import Credentials
from broker.bmq.session.session import Session, SessionHost
from broker.bmq.session.session_ports import BrokerPeer
from broker.bmq.session.session_table import TRANSITIONS, SessionState, SessionTrigger
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import EncodingType, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    BrokerResponse,
    ClientIdentity,
    NegotiationMessage,
    StatusCategory,
)
from formats.bmq.wire.event import Frame, build_schema_event, schema_encoding, schema_message
from formats.errors import FormatError

__all__ = ["REDIAL_MS", "REDIAL_MS_MAX", "REFUSED_MS", "DialedSession", "Dialer", "Redialer"]

# Time after a failure until a broker is dialed again: at first, and after repeated failures.
REDIAL_MS: Final = 100
REDIAL_MS_MAX: Final = 1_000
# Time after a refusal by the other side, which will not change soon.
REFUSED_MS: Final = 5_000

log: Final = logging.getLogger("broker.authentication")

# A session authenticates again after this share of its lifetime, and at least this long before the end: it checks once
# a second.
RENEWED_AT: Final = 0.8
SPARE_MS: Final = 2_500


class OutgoingSession(Protocol):
    """The session that authenticates itself."""

    @property
    def finished(self) -> bool: ...
    @property
    def description(self) -> str: ...

    def send_event(self, event: bytes) -> None: ...


class AuthenticationClient:
    """The authentication of a session, before it sends its identity, and again before it expires.

    `authenticated` is called once, `failed` with the reason after each failure. Source: mqba::AuthenticationClient.
    """

    def __init__(
        self,
        session: OutgoingSession,
        credentials: Credentials,
        now: Now,
        authenticated: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._now = now
        self._authenticated = authenticated
        self._failed = failed
        self._is_known = False
        self._is_answered = True
        self._due_ms: int | None = None

    def begin(self) -> None:
        self._due_ms = None
        self._credentials.get(self._send)

    def tick(self) -> None:
        """Authenticate again before the last authentication expires; called once a second."""
        if self._due_ms is not None and self._now.ms >= self._due_ms:
            self.begin()

    def _send(self, credential: AssumedCredential | str) -> None:
        session = self._session
        if session.finished:
            return
        if isinstance(credential, str):
            self._failed(f"requires authentication, but there are no credentials: {credential}")
            return
        log.info("%s: authenticates with mechanism '%s'", session.description, credential.mechanism)
        request = AuthenticationRequest(mechanism=credential.mechanism, data=credential.data or None)
        self._is_answered = False
        message = ber.encode(AuthenticationMessage(choice=request))
        session.send_event(build_schema_event(message, EventType.AUTHENTICATION))

    def on_response(self, data: memoryview, frame: Frame) -> None:
        """Raises FormatError for anything but an answer to a request."""
        body = data[frame.body : frame.end]
        response = received(AuthenticationMessage, body, schema_encoding(frame.type_specific)).choice
        if not isinstance(response, AuthenticationResponse) or self._is_answered:
            raise FormatError("AuthenticationMessage", frame.body, "does not answer a request of this broker")
        self._is_answered = True
        if response.status.category is not StatusCategory.SUCCESS:
            self._failed(f"refused this broker's credentials: {response.status.message}")
            return
        if response.lifetime_ms is not None:
            lasts_ms = response.lifetime_ms
            self._due_ms = self._now.ms + max(0, min(int(lasts_ms * RENEWED_AT), lasts_ms - SPARE_MS))
        if not self._is_known:
            self._is_known = True
            self._authenticated()


class Dialer(Protocol):
    """The owner of dialed sessions; `node_id` identifies the broker that is dialed."""

    @property
    def credentials(self) -> Credentials | None: ...

    def introduce(self, session_id: int) -> ClientIdentity: ...

    def accept(self, node_id: int, session: Session, answer: BrokerResponse) -> BrokerPeer | str:
        """Return the handler of the session, given the other side's identity, or the reason to end it."""
        ...

    def failed(self, node_id: int, reason: str) -> None:
        """Report a session that ended before negotiation was complete."""
        ...

    def refused(self, node_id: int, reason: str) -> None:
        """Report a broker that refused the session; `failed` follows."""
        ...


class DialedSession(Session):
    """A session begun by this broker: it authenticates itself, sends its identity, and waits for the answer."""

    def __init__(self, host: SessionHost, session_id: int, address: str, dialer: Dialer, node_id: int) -> None:
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
            raise FormatError("EventHeader.type", frame.body, "the dialed broker did not answer with its identity")
        body = schema_message(data, frame.body, frame.end)
        answer = received(NegotiationMessage, body, EncodingType.BER).choice
        if not isinstance(answer, BrokerResponse):
            raise FormatError("NegotiationMessage", frame.body, "the dialed broker did not answer as expected")
        if answer.result.category is StatusCategory.SUCCESS:
            accepted = self._dialer.accept(self._node_id, self, answer)
        else:
            accepted = f"refused this node: {answer.result.message}"
        if isinstance(accepted, str):
            self._dialer.refused(self._node_id, accepted)
            self.end(accepted)
            return
        identity = answer.broker_identity
        self.client.description = f"{identity.process_name}:{identity.pid}@{self.description}"
        self._broker = accepted
        self._enter(TRANSITIONS[self.state, SessionTrigger.IDENTIFIED])
        accepted.begun()


class Redialer:
    """Redials wanted brokers after a delay. `faults` has the current reason for each that cannot be linked to."""

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
        """Handle a failed or lost link; return True if the reason has changed."""
        delay_ms = self._delays_ms.get(node_id, REDIAL_MS)
        self._delays_ms[node_id] = max(delay_ms, min(delay_ms * 2, self._delay_ms_max))
        self._timers.at(self._now.ms + delay_ms, lambda: self._redial(node_id))
        is_news = self.faults.get(node_id) != reason
        self.faults[node_id] = reason
        return is_news

    def refused(self, node_id: int, reason: str) -> None:
        self.faults[node_id] = reason
        self._delays_ms[node_id] = REFUSED_MS

    def begun(self, node_id: int) -> None:
        self._delays_ms.pop(node_id, None)
        self.faults.pop(node_id, None)

    def _redial(self, node_id: int) -> None:
        if self._wants(node_id):
            self._dial(node_id)
