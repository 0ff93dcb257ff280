# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Authentication of peers: the mechanisms, and a session's state under them.

Source: mqbauthn::AuthenticationController and its built-in authenticators, mqba::Authenticator,
mqbnet::AuthenticationContext, also of the status codes and the texts that peers are sent.
"""

from __future__ import annotations

import hmac
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = [
    "ANONYMOUS",
    "LIFETIME_MS",
    "AnonymousAuthenticator",
    "AssumedCredential",
    "AuthState",
    "Authentications",
    "Authenticator",
    "BasicAuthenticator",
    "Denied",
    "Granted",
    "Outcome",
    "Unauthenticated",
    "basic_principal",
]

log: Final = logging.getLogger("broker.authentication")

ANONYMOUS: Final = "ANONYMOUS"

# Time after which a principal of the built-in mechanisms must re-authenticate.
LIFETIME_MS: Final = 600_000

HIDDEN: Final = "********"

CODE_NOT_SUPPORTED: Final = -2
CODE_DENIED: Final = -11


@dataclass(frozen=True, slots=True)
class Granted:
    """Success: the peer is `principal` for `lifetime_ms`; None as long as it stays connected."""

    principal: str
    lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """Failure: `code` and `reason` are sent to the peer."""

    code: int
    reason: str


Outcome = Granted | Denied


class Unauthenticated(Exception):
    """An authenticator's rejection of a peer."""


class Authenticator(Protocol):
    """One mechanism. If it is `blocking`, it is called in a thread."""

    @property
    def mechanism(self) -> str: ...
    @property
    def blocking(self) -> bool: ...

    def authenticate(self, data: bytes, peer: str) -> Granted:
        """Authenticate the peer at the address `peer`. Raises `Unauthenticated`."""
        ...


def basic_principal(user: str) -> str:
    return f"BASIC_USER-{user}"


class BasicAuthenticator:
    """BASIC: `user:password` from a list (source: mqbauthn::BasicAuthenticator)."""

    mechanism = "BASIC"
    blocking = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {user.encode(): password.encode() for user, password in passwords.items()}

    def authenticate(self, data: bytes, peer: str) -> Granted:
        user, colon, password = data.partition(b":")
        if not colon:
            raise Unauthenticated("Invalid authentication payload format. Expected 'username:password'")
        name = user.decode(errors="backslashreplace")
        known = self._passwords.get(user)
        if known is None or not hmac.compare_digest(known, password):
            raise Unauthenticated(f"Invalid username or password for user '{name}'")
        return Granted(basic_principal(name), LIFETIME_MS)


class AnonymousAuthenticator:
    """ANONYMOUS: accepts everybody, or nobody (source: mqbauthn::AnonAuthenticator)."""

    blocking = False

    def __init__(self, *, should_pass: bool = True) -> None:
        self.mechanism = ANONYMOUS
        self._should_pass = should_pass

    def authenticate(self, data: bytes, peer: str) -> Granted:
        if not self._should_pass:
            raise Unauthenticated("Authentication rejected by AnonAuthenticator")
        return Granted("anonymous")


@dataclass(frozen=True, slots=True)
class AssumedCredential:
    """The credential assumed for a peer that sends no authentication request."""

    mechanism: str
    data: bytes = field(repr=False)


RunBlocking = Callable[[Callable[[], Outcome], Callable[[Outcome], None]], bool]


def _at_once(work: Callable[[], Outcome], done: Callable[[Outcome], None]) -> bool:
    done(work())
    return True


class Authentications:
    """All mechanisms of a node. `anonymous` is None if every peer must authenticate.

    `run_blocking` carries out a blocking authenticator's work and hands on its outcome; False, without effect, when too
    many wait already.
    """

    def __init__(self, authenticators: Iterable[Authenticator], anonymous: AssumedCredential | None) -> None:
        self._by_mechanism = {each.mechanism.upper(): each for each in authenticators}
        self.anonymous = anonymous
        self._run_blocking: RunBlocking = _at_once

    def attach(self, run_blocking: RunBlocking) -> None:
        """Run blocking work in the loop's threads from now on; call this before the first peer."""
        self._run_blocking = run_blocking

    @classmethod
    def open(cls) -> Authentications:
        return cls([AnonymousAuthenticator()], AssumedCredential(ANONYMOUS, b""))

    @property
    def mechanisms(self) -> list[str]:
        return sorted(self._by_mechanism)

    def begin(self, mechanism: str, data: bytes, peer: str, done: Callable[[Outcome], None]) -> None:
        name = mechanism.upper()
        authenticator = self._by_mechanism.get(name)
        if authenticator is None:
            done(Denied(CODE_NOT_SUPPORTED, f"Authentication mechanism '{name}' not supported."))
        elif authenticator.blocking:
            if not self._run_blocking(lambda: _ask(authenticator, name, data, peer), done):
                done(Denied(CODE_DENIED, "Too many peers are being authenticated; try again later"))
        else:
            done(_ask(authenticator, name, data, peer))


def _ask(authenticator: Authenticator, name: str, data: bytes, peer: str) -> Outcome:
    try:
        return authenticator.authenticate(data, peer)
    except Unauthenticated as refusal:
        why = str(refusal)
    except Exception:
        # Another package's fault must not end the node, and is not revealed to the peer.
        text = _without(data, traceback.format_exc())
        log.error("the authenticator of mechanism '%s' failed for %s\n%s", name, peer, text, extra={"multiline": True})
        why = "the authenticator failed"
    return Denied(CODE_DENIED, f"Failed to authenticate with mechanism '{name}'. (rc = -1). Detailed error: {why}")


def _without(data: bytes, text: str) -> str:
    """Remove credentials that an authenticator's exception may quote, whole or from the colon on, from a traceback."""
    for secret in (data, data.partition(b":")[2]):
        for shown in (secret.decode(errors="backslashreplace"), repr(secret)[2:-1], secret.hex()):
            if shown:
                text = text.replace(shown, HIDDEN)
    return text


class AuthState:
    """A peer's authentication: its principal, if any, its mechanism, and its deadline."""

    __slots__ = ("deadline_ms", "mechanism", "pending", "principal")

    def __init__(self) -> None:
        self.mechanism = ""
        self.principal: str | None = None
        self.deadline_ms: int | None = None  # time by which it must have re-authenticated
        self.pending = False  # an outcome is awaited

    def settle(self, mechanism: str, outcome: Outcome, now_ms: int) -> Outcome:
        """Apply an outcome and return the resulting one: a peer's principal must not change."""
        self.pending = False
        if isinstance(outcome, Denied):
            return outcome
        if self.principal is not None and self.principal != outcome.principal:
            return Denied(-1, "Principal cannot change during reauthentication")
        self.mechanism, self.principal = mechanism.upper(), outcome.principal
        self.deadline_ms = None if outcome.lifetime_ms is None else now_ms + outcome.lifetime_ms
        return outcome
