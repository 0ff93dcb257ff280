# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The credentials of this broker at brokers that it dials (source: mqbplug::CredentialProvider)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from broker.bmq.session.authentication import AssumedCredential

__all__ = ["BasicCredentials", "CredentialProvider", "Credentials", "NoCredential"]

log: Final = logging.getLogger("broker.authentication")

Found = AssumedCredential | str


class NoCredential(Exception):
    """A provider has no credential at present; the text is the reason, without secrets."""


class CredentialProvider(Protocol):
    """A source of credentials. If it is `blocking`, it is called in a thread."""

    @property
    def blocking(self) -> bool: ...

    def credential(self) -> AssumedCredential:
        """Return the current credential; called for each connection, and again before it expires.

        Raises `NoCredential`.
        """
        ...


class BasicCredentials:
    """A user and a password, for the mechanism BASIC (source: mqbauthn::BasicCredentialProvider)."""

    blocking = False

    def __init__(self, user: str, password: str) -> None:
        self._credential = AssumedCredential("BASIC", f"{user}:{password}".encode())

    def credential(self) -> AssumedCredential:
        return self._credential


def _at_once(work: Callable[[], Found], done: Callable[[Found], None]) -> None:
    done(work())


class Credentials:
    """Access to the provider without blocking the loop: `run_blocking` runs blocking work in a thread."""

    def __init__(
        self,
        provider: CredentialProvider,
        run_blocking: Callable[[Callable[[], Found], Callable[[Found], None]], None] = _at_once,
    ) -> None:
        self._provider = provider
        self._run_blocking = run_blocking

    def get(self, done: Callable[[Found], None]) -> None:
        if self._provider.blocking:
            self._run_blocking(self._ask, done)
        else:
            done(self._ask())

    def _ask(self) -> Found:
        try:
            return self._provider.credential()
        except NoCredential as reason:
            return str(reason)
        except Exception as error:
            # Another package's fault must not end the node. Its text may contain secrets.
            log.error("the credential provider failed: %s", type(error).__name__)
            return "the credential provider failed"
