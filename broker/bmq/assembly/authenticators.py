"""The configured authenticators: built-in ones, and those of installed packages.

A package offers one as an entry point of the group `bmqctl.authenticators`, under the name in `authenticators[].name`:
a callable from the settings, a dictionary, to a `broker.bmq.session.authentication.Authenticator`. It is imported only
if configured.

Source: mqbauthn::AuthenticationController, mqbauthn::TestAuthenticator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from broker.bmq.assembly.plugins import Setting, load_plugin, settings_of
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import AuthenticatorConfig, PluginConfig
from broker.bmq.session.authentication import (
    ANONYMOUS,
    LIFETIME_MS,
    AnonymousAuthenticator,
    AssumedCredential,
    Authentications,
    Authenticator,
    BasicAuthenticator,
    Granted,
)

__all__ = ["ENTRY_POINTS", "make_authentications"]

log = logging.getLogger("broker.authentication")

ENTRY_POINTS = "bmqctl.authenticators"
WHERE = "$.appConfig.authentication"

Factory = Callable[[Mapping[str, Setting]], Authenticator]


def make_authentications(config: AuthenticatorConfig, file: str) -> Authentications:
    """Make the authenticators of `config`. Raises `ConfigError` about `file`."""
    by_mechanism: dict[str, Authenticator] = {}
    for index, plugin in enumerate(config.authenticators):
        authenticator = _make(plugin, file, f"{WHERE}.authenticators[{index}]")
        mechanism = authenticator.mechanism.upper()
        if mechanism in by_mechanism:
            raise ConfigError(
                file,
                f"{WHERE}.authenticators[{index}]",
                f"is a second authenticator for mechanism {mechanism}",
                "keep one of them",
            )
        by_mechanism[mechanism] = authenticator
        log.info("Started authenticator '%s' with mechanism '%s'", plugin.name, mechanism)
    anonymous = _anonymous(config, by_mechanism, file)
    if anonymous is None:
        log.info("peers that do not authenticate are refused")
    else:
        log.info("peers that do not authenticate are treated as anonymous by mechanism '%s'", anonymous.mechanism)
    return Authentications(by_mechanism.values(), anonymous)


def _anonymous(
    config: AuthenticatorConfig, by_mechanism: dict[str, Authenticator], file: str
) -> AssumedCredential | None:
    """Return the credential of peers that send none, or None; add the default authenticator by default."""
    wanted = config.anonymous_credential
    if wanted is None:
        if ANONYMOUS in by_mechanism:
            raise ConfigError(
                file,
                f"{WHERE}.anonymousCredential",
                "is missing, but an authenticator for ANONYMOUS is configured",
                "set the credential to use for peers that send none, or disallow such peers",
            )
        by_mechanism[ANONYMOUS] = AnonymousAuthenticator()
        return AssumedCredential(ANONYMOUS, b"")
    if wanted.credential is None:
        return None
    mechanism = wanted.credential.mechanism.upper()
    if mechanism not in by_mechanism:
        raise ConfigError(
            file,
            f"{WHERE}.anonymousCredential.credential.mechanism",
            f"is {mechanism}, for which there is no authenticator",
            f"use one of {', '.join(by_mechanism) or 'those that you configure'}",
        )
    return AssumedCredential(mechanism, wanted.credential.identity.get_secret_value().encode())


def _make(plugin: PluginConfig, file: str, where: str) -> Authenticator:
    make = _BUILT_IN.get(plugin.name)
    if make is not None:
        return make(settings_of(plugin))
    made: Authenticator = load_plugin(ENTRY_POINTS, plugin, file, where, _BUILT_IN)
    return made


def _basic(settings: Mapping[str, Setting]) -> Authenticator:
    passwords = {user: password for user, password in settings.items() if isinstance(password, str)}
    if not passwords:
        log.error("ALARM [CREDENTIALS_MISSING] BasicAuthenticator has no users: nobody can authenticate with it")
    return BasicAuthenticator(passwords)


def _anonymous_authenticator(settings: Mapping[str, Setting]) -> Authenticator:
    return AnonymousAuthenticator(should_pass=settings.get("shouldPass", True) is not False)


class _TestAuthenticator:
    """TEST: accepts every peer after `sleepTimeMs`, to try out a slow authenticator."""

    mechanism = "TEST"
    blocking = True

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        sleep_ms = settings.get("sleepTimeMs", 0)
        self._sleep_s = sleep_ms / 1000 if isinstance(sleep_ms, int) else 0.0

    def authenticate(self, data: bytes, peer: str) -> Granted:
        time.sleep(self._sleep_s)
        return Granted("TEST_USER", LIFETIME_MS)


_BUILT_IN: dict[str, Factory] = {
    "BasicAuthenticator": _basic,
    "AnonAuthenticator": _anonymous_authenticator,
    "TestAuthenticator": _TestAuthenticator,
}
