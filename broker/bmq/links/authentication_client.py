# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Authentication of a session that this broker has begun: before it sends its identity, and again before it expires.

Source: mqba::AuthenticationClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from broker.bmq.core.received import received
from broker.bmq.session.authentication import AssumedCredential
from broker.bmq.session.credentials import Credentials
from broker.common.clock import Now
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    StatusCategory,
)
from formats.bmq.wire.event import EventType, Frame, build_schema_event, schema_encoding
from formats.errors import FormatError

__all__ = ["AuthenticationClient"]

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
    """The authentication of a session. `authenticated` is called once, `failed` with the reason after each failure."""

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
        """Send a request as soon as there is a credential."""
        self._due_ms = None
        self._credentials.get(self._send)

    def tick(self) -> None:
        """Authenticate again before the lifetime of the last authentication ends; called once a second."""
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
        """Handle the answer to a request. Raises FormatError if it is none."""
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
