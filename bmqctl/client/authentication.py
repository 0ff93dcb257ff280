"""How a session says who asks for it, before it says what it is, and again before that runs out.

Source of the behaviour: `bmqimp::AuthenticatedChannelFactory`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.control import ber
from formats.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    StatusCategory,
)
from formats.schema import Buffer
from formats.wire.event import EventType, build_schema_event

__all__ = ["Authentication", "Credentials", "NotAuthenticated"]

# How long before a broker's patience ends the session authenticates again: the earlier of these.
_EARLY_RATIO: Final = 0.9
_EARLY_MS: Final = 5000
_MS_NS: Final = 1_000_000


class Credentials(NamedTuple):
    """Of a mechanism that the broker knows, as BASIC with `user:password`."""

    mechanism: str
    data: bytes

    def __repr__(self) -> str:
        return f"Credentials(mechanism={self.mechanism!r})"


class NotAuthenticated(Exception):
    """The broker does not take the credentials; the text says why, as far as it does."""


class Authentication:
    """`due_ns` is when to ask again, None while that is not known."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.due_ns: int | None = None

    def request(self) -> bytes:
        """What to send."""
        self.due_ns = None
        request = AuthenticationRequest(mechanism=self._credentials.mechanism, data=self._credentials.data)
        return build_schema_event(ber.encode(AuthenticationMessage(choice=request)), EventType.AUTHENTICATION)

    def answered(self, content: Buffer, now_ns: int) -> None:
        """Take the broker's answer; `NotAuthenticated` if it is no."""
        response = ber.decode(AuthenticationMessage, content).choice
        if not isinstance(response, AuthenticationResponse):
            raise NotAuthenticated("it asks us for credentials")
        if response.status.category is not StatusCategory.SUCCESS:
            raise NotAuthenticated(response.status.message or response.status.category.name)
        if response.lifetime_ms is not None:
            early_ms = min(int(response.lifetime_ms * _EARLY_RATIO), max(response.lifetime_ms - _EARLY_MS, 0))
            self.due_ns = now_ns + early_ms * _MS_NS
