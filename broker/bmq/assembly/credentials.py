"""The configured credentials with which this broker authenticates at others.

A package offers a provider as an entry point of the group `bmqctl.credential_providers`, under the name in
`credentialProvider.name`: a callable from the settings, a dictionary, to a
`broker.bmq.session.credentials.CredentialProvider`. It is imported only if configured.

Source: mqbauthn::AuthenticationController, mqbauthn::BasicCredentialProvider.
"""

from __future__ import annotations

import logging

from broker.bmq.assembly.plugins import load_plugin, settings_of
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import AuthenticatorConfig, PluginConfig
from broker.bmq.session.credentials import BasicCredentials, CredentialProvider

__all__ = ["ENTRY_POINTS", "make_credential_provider"]

log = logging.getLogger("broker.authentication")

ENTRY_POINTS = "bmqctl.credential_providers"
WHERE = "$.appConfig.authentication.credentialProvider"
BASIC = "BasicCredentialProvider"


def make_credential_provider(config: AuthenticatorConfig, file: str) -> CredentialProvider | None:
    """Make the credential provider of `config`, or None. Raises `ConfigError` about `file`."""
    plugin = config.credential_provider
    if plugin is None:
        return None
    if plugin.name == BASIC:
        return _basic(plugin, file)
    provider: CredentialProvider = load_plugin(ENTRY_POINTS, plugin, file, WHERE, (BASIC,))
    log.info("Started credential provider '%s'", plugin.name)
    return provider


def _basic(plugin: PluginConfig, file: str) -> CredentialProvider:
    settings = {key: value for key, value in settings_of(plugin).items() if isinstance(value, str)}
    user = settings.get("username", "")
    if not user:
        remedy = 'give it the settings "username" and "password", each a "stringVal"'
        raise ConfigError(file, f"{WHERE}.settings", "has no username", remedy)
    log.info("%s started for user '%s'", BASIC, user)
    return BasicCredentials(user, settings.get("password", ""))
