"""What comes before a session: maybe an authentication request, then the peer's identity; and authenticating again.

Source: mqbnet::InitialConnectionContext, mqba::Authenticator, mqbnet::TCPSessionFactory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker.core.authentication import ANONYMOUS, Authentications, Denied, Outcome, Standing
from broker.core.clock import Now
from broker.core.received import received
from formats.control import ber, jsonc
from formats.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    ClientIdentity,
    NegotiationMessage,
    Status,
    StatusCategory,
)
from formats.errors import FormatError
from formats.wire.event import EncodingType, EventType, Frame, build_schema_event, schema_encoding

__all__ = ["Entrance", "uncertified"]

log = logging.getLogger("broker.authentication")


class Host(Protocol):
    """What an entrance asks of the node."""

    @property
    def now(self) -> Now: ...
    @property
    def authentications(self) -> Authentications: ...


class Guest(Protocol):
    """The session that is entered, as its entrance sees it. While it is `paused` it takes no input."""

    paused: bool

    @property
    def finished(self) -> bool: ...
    @property
    def description(self) -> str: ...

    def send_event(self, event: bytes) -> None: ...

    def identify(self, identity: ClientIdentity, encoding: EncodingType) -> None:
        """The peer is known, and says this of itself."""
        ...

    def log_improper(self, what: str) -> None: ...

    def end(self, reason: str) -> None: ...

    def fail(self, error: Exception) -> None:
        """The session's work failed."""
        ...


def uncertified() -> frozenset[str]:
    """The names that a peer has without a certificate: none."""
    return frozenset()


class Entrance:
    """One session's, which is `paused` until there is an outcome, while no input can be handled.

    `standing` is who the peer is. `certified` gives the names in the certificate that the peer has shown, once its
    identity is here. `proven` is the principal of a peer that has authenticated itself, rather than being taken for the
    anonymous one.
    """

    def __init__(
        self, host: Host, guest: Guest, peer: str, certified: Callable[[], frozenset[str]] = uncertified
    ) -> None:
        self._host = host
        self._guest = guest
        self.peer = peer
        self.certified = certified
        self.standing = Standing()
        self.proven: str | None = None
        self._identity: tuple[ClientIdentity, EncodingType] | None = None

    def hold(self) -> None:
        """Let the peer wait, whose identity is here: what it is will be known later."""
        self._guest.paused = True

    def release(self) -> None:
        """Let the peer wait no longer."""
        self._guest.paused = False

    def resume(self) -> None:
        """Let the peer wait no longer, and look at its identity anew."""
        self.release()
        if self._identity is not None and not self._guest.finished:
            self._guest.identify(*self._identity)

    def _identify(self, identity: ClientIdentity, encoding: EncodingType) -> None:
        self._identity = identity, encoding
        self._guest.identify(identity, encoding)

    @property
    def has_expired(self) -> bool:
        """Return whether the peer should have authenticated again."""
        deadline = self.standing.deadline_ms
        return deadline is not None and self._host.now.ms >= deadline and not self.standing.pending

    def on_event(self, data: memoryview, frame: Frame) -> None:
        """An event of a peer that has not said who it is."""
        if frame.type == EventType.AUTHENTICATION and self.standing.principal is None:
            self._guest.paused = True
            self.on_authentication(data, frame)
            return
        if frame.type != EventType.CONTROL:
            raise FormatError("EventHeader.type", frame.body, "a peer must say who it is before anything else")
        encoding = schema_encoding(frame.type_specific)
        identity = received(NegotiationMessage, data[frame.body : frame.end], encoding).choice
        if not isinstance(identity, ClientIdentity):
            raise FormatError("NegotiationMessage", frame.body, "a peer that connects sends its identity")
        if self.standing.principal is not None:
            self._identify(identity, encoding)
            return
        anonymous = self._host.authentications.anonymous
        if anonymous is None:
            self._guest.end("did not authenticate, and nobody may be anonymous")
            return
        self._guest.paused = True
        then = partial(self._on_anonymous, identity, encoding, anonymous.mechanism)
        done = partial(self._settle, then)
        self._host.authentications.begin(anonymous.mechanism, anonymous.data, self.peer, done)

    def on_authentication(self, data: memoryview, frame: Frame) -> None:
        """A request to authenticate: the first, or again under the same principal and mechanism."""
        encoding = schema_encoding(frame.type_specific)
        request = received(AuthenticationMessage, data[frame.body : frame.end], encoding).choice
        if not isinstance(request, AuthenticationRequest):
            raise FormatError("AuthenticationMessage", frame.body, "a client sends no authentication response")
        standing = self.standing
        if standing.pending:
            self._guest.log_improper("AUTHENTICATION while another is in progress")
            return
        if standing.principal is not None and request.mechanism.upper() != standing.mechanism:
            self._guest.end("authenticates again by another mechanism")
            return
        standing.pending = True
        done = partial(self._settle, partial(self._on_outcome, request.mechanism, encoding))
        self._host.authentications.begin(request.mechanism, request.data or b"", self.peer, done)

    def _settle(self, then: Callable[[Outcome], None], outcome: Outcome) -> None:
        """Take in an outcome, maybe in a step that is not this session's."""
        try:
            then(outcome)
        except Exception as error:
            self._guest.fail(error)

    def _on_outcome(self, mechanism: str, encoding: EncodingType, outcome: Outcome) -> None:
        self._guest.paused = False
        guest = self._guest
        if guest.finished:
            return
        outcome = self.standing.settle(mechanism, outcome, self._host.now.ms)
        if isinstance(outcome, Denied):
            status = Status(category=StatusCategory.REFUSED, code=outcome.code, message=outcome.reason)
            answer = AuthenticationResponse(status=status)
        else:
            status = Status(category=StatusCategory.SUCCESS, code=0)
            answer = AuthenticationResponse(status=status, lifetime_ms=outcome.lifetime_ms)
            if mechanism.upper() != ANONYMOUS:
                self.proven = outcome.principal
            log.info("%s: authenticated as '%s' with mechanism '%s'", guest.description, outcome.principal, mechanism)
        codec = jsonc if encoding is EncodingType.JSON else ber
        body = codec.encode(AuthenticationMessage(choice=answer))
        guest.send_event(build_schema_event(body, EventType.AUTHENTICATION, encoding))
        if isinstance(outcome, Denied):
            guest.end(f"authentication failed: {outcome.reason}")

    def _on_anonymous(self, identity: ClientIdentity, encoding: EncodingType, mechanism: str, outcome: Outcome) -> None:
        """The outcome for a peer that did not authenticate; it is not told."""
        self._guest.paused = False
        guest = self._guest
        if guest.finished:
            return
        outcome = self.standing.settle(mechanism, outcome, self._host.now.ms)
        # Who cannot authenticate cannot do so again: such a peer stays.
        self.standing.deadline_ms = None
        if isinstance(outcome, Denied):
            guest.end(f"authentication failed: {outcome.reason}")
        else:
            self._identify(identity, encoding)
