"""The sessions of persons at the console: a secret in a cookie, a token against forged requests. Pure but for secrets.

A session ends after `IDLE_S` without a request. There are at most `SESSIONS_MAX` sessions with a login, and as many
without: a new session ends the longest idle one of its kind, so that strangers end no person's session. Of the sessions
without a login, those with a single request end first.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["IDLE_S", "SESSIONS_MAX", "Session", "Sessions"]

IDLE_S: Final = 1800.0
SESSIONS_MAX: Final = 64
_TOKEN_BYTES: Final = 32

T = TypeVar("T")


class Session(Generic[T]):
    """One browser: its user (None without a login), and the object shown to it."""

    def __init__(self, user: str | None, shown: T, now_s: float) -> None:
        self.user = user
        self.shown = shown
        self.key = secrets.token_urlsafe(_TOKEN_BYTES)
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.used_at_s = now_s
        # Its cookie came back.
        self.is_in_use = False

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(self.token.encode(), given.encode())


class Sessions(Generic[T]):
    """All sessions by key. `end` gets the object shown by an ended one."""

    def __init__(self, clock_s: Callable[[], float], end: Callable[[T], None]) -> None:
        self._clock_s = clock_s
        self._end = end
        self._sessions: dict[str, Session[T]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: str | None, shown: T) -> Session[T]:
        self._end_idle()
        alike = [each for each in self._sessions.values() if (each.user is None) == (user is None)]
        if len(alike) >= SESSIONS_MAX:
            self.end(min(alike, key=lambda each: (user is None and each.is_in_use, each.used_at_s)))
        session = Session(user, shown, self._clock_s())
        self._sessions[session.key] = session
        return session

    def find(self, key: str | None) -> Session[T] | None:
        """The session of a cookie, marked as in use; None if there is none."""
        self._end_idle()
        found = None if key is None else self._sessions.get(key)
        if found is not None:
            found.used_at_s = self._clock_s()
            found.is_in_use = True
        return found

    def end(self, session: Session[T]) -> None:
        if self._sessions.pop(session.key, None) is not None:
            self._end(session.shown)

    def end_all(self) -> None:
        for each in list(self._sessions.values()):
            self.end(each)

    def _end_idle(self) -> None:
        oldest_s = self._clock_s() - IDLE_S
        for each in [each for each in self._sessions.values() if each.used_at_s < oldest_s]:
            self.end(each)
