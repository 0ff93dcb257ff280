"""The configured authorizer: a built-in one, or that of an installed package.

A package offers one as an entry point of the group `bmqctl.authorizers`, under the name in `authorizer.name`: a
callable from the settings, a dictionary, to a `broker.bmq.session.authorization.Authorizer`. It is imported only if
configured.

Source: mqbauthz::AuthorizationController. `rules` are this broker's own; the reference ignores them.
"""

from __future__ import annotations

import logging

from broker.bmq.assembly.plugins import load_plugin
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import AuthorizerConfig, PluginConfig
from broker.bmq.config.errors import shown
from broker.bmq.session.authorization import (
    Authorizations,
    Authorizer,
    DefaultAuthorizer,
    Permission,
    Rule,
    RuleAuthorizer,
)

__all__ = ["ENTRY_POINTS", "make_authorizations"]

log = logging.getLogger("broker.authorization")

ENTRY_POINTS = "bmqctl.authorizers"
WHERE = "$.appConfig.authorization"


def make_authorizations(config: AuthorizerConfig, file: str) -> Authorizations:
    """Make the authorizer of `config`. Raises `ConfigError` about `file`."""
    authorizer = _make(config, file)
    log.info("Created authorizer '%s'", authorizer.name)
    return Authorizations(authorizer)


def _make(config: AuthorizerConfig, file: str) -> Authorizer:
    plugin = config.authorizer
    if plugin is None:
        return _by_rules(config) if config.rules else DefaultAuthorizer()
    if plugin.name == RuleAuthorizer.name:
        if not config.rules:
            raise ConfigError(
                file, f"{WHERE}.rules", "is missing, so every action is denied", "write at least one rule"
            )
        return _by_rules(config)
    if config.rules:
        raise ConfigError(
            file,
            f"{WHERE}.rules",
            f"has rules, and authorizer {shown(plugin.name)} does not use them",
            f"remove them, or use {RuleAuthorizer.name}",
        )
    return DefaultAuthorizer() if plugin.name == DefaultAuthorizer.name else _installed(plugin, file)


def _by_rules(config: AuthorizerConfig) -> Authorizer:
    return RuleAuthorizer(
        Rule(
            [Permission(action.value) for action in rule.actions],
            rule.principals,
            rule.mechanisms,
            rule.domains,
        )
        for rule in config.rules
    )


def _installed(plugin: PluginConfig, file: str) -> Authorizer:
    made: Authorizer = load_plugin(
        ENTRY_POINTS, plugin, file, f"{WHERE}.authorizer", (DefaultAuthorizer.name, RuleAuthorizer.name)
    )
    return made
