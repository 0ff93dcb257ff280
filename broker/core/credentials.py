"""What this broker authenticates by at the brokers that it dials (source: mqbplug::CredentialProvider)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from broker.core.authentication import Credential

__all__ = ["BasicCredentials", "CredentialProvider", "Credentials", "NoCredential"]

log = logging.getLogger("broker.authentication")

Found = Credential | str


class NoCredential(Exception):
    """What a provider says with that it has no credential now; the text says why, and tells no secret."""


class CredentialProvider(Protocol):
    """Where credentials come from. `blocking`: it takes its time, so it is asked in a thread."""

    @property
    def blocking(self) -> bool: ...

    def credential(self) -> Credential:
        """What to authenticate by now; asked for each connection, and again before its time is over.

        Raises `NoCredential`.
        """
        ...


class BasicCredentials:
    """A user and a password, for the mechanism BASIC (source: mqbauthn::BasicCredentialProvider)."""

    blocking = False

    def __init__(self, user: str, password: str) -> None:
        self._credential = Credential("BASIC", f"{user}:{password}".encode())

    def credential(self) -> Credential:
        return self._credential


def _at_once(work: Callable[[], Found], done: Callable[[Found], None]) -> None:
    done(work())


class Credentials:
    """The provider, asked so that nobody waits: `run_blocking` does in a thread what takes its time."""

    def __init__(
        self,
        provider: CredentialProvider,
        run_blocking: Callable[[Callable[[], Found], Callable[[Found], None]], None] = _at_once,
    ) -> None:
        self._provider = provider
        self._run_blocking = run_blocking

    def get(self, done: Callable[[Found], None]) -> None:
        """Find out what to authenticate by; `done` is called with it, or with why there is nothing, now or later."""
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
            # Another package's fault must not end the node. Its text may quote what is secret.
            log.error("the credential provider failed: %s", type(error).__name__)
            return "the credential provider failed"
