# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The handshake before a session: an optional authentication request, then the peer's identity; and re-authentication.

Source: mqbnet::InitialConnectionContext, mqba::Authenticator, mqbnet::TCPSessionFactory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker.bmq.core.received import received
from broker.bmq.session.authentication import ANONYMOUS, Authentications, AuthState, Denied, Outcome
from broker.common.clock import Now
from formats.bmq.control import codec
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    ClientIdentity,
    NegotiationMessage,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import EncodingType, EventType, Frame, build_schema_event, schema_encoding
from formats.errors import FormatError

__all__ = ["Entrance", "uncertified"]

log: Final = logging.getLogger("broker.authentication")


class EntranceHost(Protocol):
    """The node's interface for an entrance."""

    @property
    def now(self) -> Now: ...
    @property
    def authentications(self) -> Authentications: ...


class EnteringSession(Protocol):
    """The session of an entrance. While it is `paused` it takes no input."""

    paused: bool

    @property
    def finished(self) -> bool: ...
    @property
    def description(self) -> str: ...

    def send_event(self, event: bytes) -> None: ...

    def identify(self, identity: ClientIdentity, encoding: EncodingType) -> None: ...

    def log_improper(self, what: str) -> None: ...

    def end(self, reason: str) -> None: ...

    def fail(self, error: Exception) -> None: ...


def uncertified() -> frozenset[str]:
    return frozenset()


class Entrance:
    """The handshake of a session, which is `paused` until there is an outcome.

    `auth` is the peer's authentication. `certified` returns the names in its certificate, once its identity is here.
    `proven` is the principal of a peer that has authenticated itself, rather than being taken for the anonymous one.
    """

    def __init__(
        self,
        host: EntranceHost,
        guest: EnteringSession,
        peer: str,
        certified: Callable[[], frozenset[str]] = uncertified,
    ) -> None:
        self._host = host
        self._guest = guest
        self.peer = peer
        self.certified = certified
        self.auth = AuthState()
        self.proven: str | None = None
        self._identity: tuple[ClientIdentity, EncodingType] | None = None

    def hold(self) -> None:
        """Let a peer wait whose identity has arrived, while its kind is being determined."""
        self._guest.paused = True

    def release(self) -> None:
        self._guest.paused = False

    def resume(self) -> None:
        """End the peer's wait, and process its identity again."""
        self.release()
        if self._identity is not None and not self._guest.finished:
            self._guest.identify(*self._identity)

    def _identify(self, identity: ClientIdentity, encoding: EncodingType) -> None:
        self._identity = identity, encoding
        self._guest.identify(identity, encoding)

    @property
    def has_expired(self) -> bool:
        deadline = self.auth.deadline_ms
        return deadline is not None and self._host.now.ms >= deadline and not self.auth.pending

    def on_event(self, data: memoryview, frame: Frame) -> None:
        if frame.type == EventType.AUTHENTICATION and self.auth.principal is None:
            self._guest.paused = True
            self.on_authentication(data, frame)
            return
        if frame.type != EventType.CONTROL:
            raise FormatError("EventHeader.type", frame.body, "sent a message before negotiation")
        encoding = schema_encoding(frame.type_specific)
        identity = received(NegotiationMessage, data[frame.body : frame.end], encoding).choice
        if not isinstance(identity, ClientIdentity):
            raise FormatError("NegotiationMessage", frame.body, "sent a message other than its identity")
        if self.auth.principal is not None:
            self._identify(identity, encoding)
            return
        anonymous = self._host.authentications.anonymous
        if anonymous is None:
            self._guest.end("did not authenticate, and anonymous peers are not allowed")
            return
        self._guest.paused = True
        then = partial(self._on_anonymous, identity, encoding, anonymous.mechanism)
        done = partial(self._settle, then)
        self._host.authentications.begin(anonymous.mechanism, anonymous.data, self.peer, done)

    def on_authentication(self, data: memoryview, frame: Frame) -> None:
        """Handle a first authentication, or a repetition with the same principal and mechanism."""
        encoding = schema_encoding(frame.type_specific)
        request = received(AuthenticationMessage, data[frame.body : frame.end], encoding).choice
        if not isinstance(request, AuthenticationRequest):
            raise FormatError(
                "AuthenticationMessage", frame.body, "sent an authentication response, which only brokers send"
            )
        auth = self.auth
        if auth.pending:
            self._guest.log_improper("AUTHENTICATION while another is in progress")
            return
        if auth.principal is not None and request.mechanism.upper() != auth.mechanism:
            self._guest.end("re-authenticates with another mechanism")
            return
        auth.pending = True
        done = partial(self._settle, partial(self._on_outcome, request.mechanism, encoding))
        self._host.authentications.begin(request.mechanism, request.data or b"", self.peer, done)

    def _settle(self, then: Callable[[Outcome], None], outcome: Outcome) -> None:
        """Apply an outcome, possibly in another session's step."""
        try:
            then(outcome)
        except Exception as error:
            self._guest.fail(error)

    def _on_outcome(self, mechanism: str, encoding: EncodingType, outcome: Outcome) -> None:
        self._guest.paused = False
        guest = self._guest
        if guest.finished:
            return
        outcome = self.auth.settle(mechanism, outcome, self._host.now.ms)
        if isinstance(outcome, Denied):
            status = Status(category=StatusCategory.REFUSED, code=outcome.code, message=outcome.reason)
            answer = AuthenticationResponse(status=status)
        else:
            status = Status(category=StatusCategory.SUCCESS, code=0)
            answer = AuthenticationResponse(status=status, lifetime_ms=outcome.lifetime_ms)
            if mechanism.upper() != ANONYMOUS:
                self.proven = outcome.principal
            log.info("%s: authenticated as '%s' with mechanism '%s'", guest.description, outcome.principal, mechanism)
        body = codec.encode(AuthenticationMessage(choice=answer), encoding)
        guest.send_event(build_schema_event(body, EventType.AUTHENTICATION, encoding))
        if isinstance(outcome, Denied):
            guest.end(f"authentication failed: {outcome.reason}")

    def _on_anonymous(self, identity: ClientIdentity, encoding: EncodingType, mechanism: str, outcome: Outcome) -> None:
        """Apply the outcome for a peer that did not authenticate; it is not sent."""
        self._guest.paused = False
        guest = self._guest
        if guest.finished:
            return
        outcome = self.auth.settle(mechanism, outcome, self._host.now.ms)
        # A peer that cannot authenticate cannot re-authenticate: it stays.
        self.auth.deadline_ms = None
        if isinstance(outcome, Denied):
            guest.end(f"authentication failed: {outcome.reason}")
        else:
            self._identify(identity, encoding)
