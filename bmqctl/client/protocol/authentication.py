"""Authentication of a session, before negotiation and again before it expires.

Source of the behaviour: `bmqimp::AuthenticatedChannelFactory`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    StatusCategory,
)
from formats.bmq.wire.event import EventType, build_schema_event
from formats.schema import Buffer

__all__ = ["Authentication", "Credentials", "NotAuthenticated"]

# The session re-authenticates before expiry, at the earlier of these.
_EARLY_RATIO: Final = 0.9
_EARLY_MS: Final = 5000
_MS_NS: Final = 1_000_000


class Credentials(NamedTuple):
    """Credentials for an authentication mechanism, such as BASIC with `user:password`."""

    mechanism: str
    data: bytes

    def __repr__(self) -> str:
        return f"Credentials(mechanism={self.mechanism!r})"


class NotAuthenticated(Exception):
    """Rejection of the credentials by the broker; the text is the broker's reason, if given."""


class Authentication:
    """The state of a session's authentication; `due_ns` is the time of the next request, None while unknown."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.due_ns: int | None = None

    def request(self) -> bytes:
        self.due_ns = None
        request = AuthenticationRequest(mechanism=self._credentials.mechanism, data=self._credentials.data)
        return build_schema_event(ber.encode(AuthenticationMessage(choice=request)), EventType.AUTHENTICATION)

    def answered(self, content: Buffer, now_ns: int) -> None:
        """Process the broker's answer. Raises `NotAuthenticated` if it is a rejection."""
        response = ber.decode(AuthenticationMessage, content).choice
        if not isinstance(response, AuthenticationResponse):
            raise NotAuthenticated("it requested credentials from this client")
        if response.status.category is not StatusCategory.SUCCESS:
            raise NotAuthenticated(response.status.message or response.status.category.name)
        if response.lifetime_ms is not None:
            early_ms = min(int(response.lifetime_ms * _EARLY_RATIO), max(response.lifetime_ms - _EARLY_MS, 0))
            self.due_ns = now_ns + early_ms * _MS_NS
