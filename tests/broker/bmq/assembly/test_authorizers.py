"""The making of an authorizer from the configuration, and the faults of the latter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from broker.bmq.assembly import plugins
from broker.bmq.assembly.authorizers import ENTRY_POINTS, make_authorizations
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import AuthorizerConfig
from broker.bmq.config.load import parse
from broker.bmq.session.authorization import (
    Action,
    Authorizations,
    ConnectAdmin,
    ConnectClient,
    ConnectProxy,
    QueueRead,
    Who,
)

ANYBODY = Who("anonymous", "ANONYMOUS")
ANN = Who("BASIC_USER-ann", "BASIC")


def make(**members: Any) -> Authorizations:
    config = parse(AuthorizerConfig, json.dumps(members).encode(), "etc/bmqbrkrcfg.json")
    return make_authorizations(config, "etc/bmqbrkrcfg.json")


@pytest.mark.parametrize("members", [{}, {"authorizer": {"name": "DefaultAuthorizer"}}])
def test_without_rules_everything_is_allowed(members: dict[str, Any]) -> None:
    assert make(**members).allows(ConnectAdmin(), ANYBODY)


@pytest.mark.parametrize("authorizer", [{}, {"authorizer": {"name": "RuleAuthorizer"}}])
def test_rules_are_enough(authorizer: dict[str, Any]) -> None:
    made = make(
        **authorizer,
        rules=[
            {"principals": ["BASIC_USER-ann"], "mechanisms": ["Basic"], "actions": ["administer", "broker"]},
            {"actions": ["read"], "domains": ["public.*"]},
        ],
    )
    assert made.allows(ConnectAdmin(), ANN)
    assert made.allows(ConnectProxy(), ANN)
    assert not made.allows(ConnectAdmin(), ANYBODY)
    assert not made.allows(ConnectAdmin(), Who("BASIC_USER-ann", "OAUTH"))
    assert made.allows(ConnectClient(), ANYBODY)
    assert made.allows(QueueRead("bmq://public.news/q"), ANYBODY)
    assert not made.allows(QueueRead("bmq://private/q"), ANN)


@pytest.mark.parametrize(
    ("members", "path", "reason"),
    [
        ({"authorizer": {"name": "RuleAuthorizer"}}, "rules", "is missing, so every action is denied"),
        (
            {"authorizer": {"name": "DefaultAuthorizer"}, "rules": [{"actions": ["read"]}]},
            "rules",
            "has rules, and authorizer 'DefaultAuthorizer' does not use them",
        ),
        ({"authorizer": {"name": "Guard"}}, "authorizer.name", "is 'Guard', which no installed package provides"),
    ],
)
def test_invalid_member_is_reported_with_its_path(members: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        make(**members)
    assert failure.value.json_path == f"$.appConfig.authorization.{path}"
    assert reason in failure.value.reason


@pytest.mark.parametrize(
    ("rule", "path", "reason"),
    [
        ({}, "$.rules[0].actions", "is missing"),
        ({"actions": []}, "$.rules[0].actions", "is empty"),
        ({"actions": ["reed"]}, "$.rules[0].actions[0]", "is 'reed'"),
        ({"actions": ["read"], "principals": "ann"}, "$.rules[0].principals", "is 'ann', not an array"),
    ],
)
def test_a_rule_that_cannot_be_is_told_with_its_place(rule: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        make(rules=[rule])
    assert (failure.value.json_path, failure.value.reason) == (path, reason)


class Guard:
    """An authorizer of another package: one principal may do everything."""

    name = "Guard"

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.chief = settings["chief"]

    def authorize(self, action: Action, who: Who) -> bool:
        return who.principal == self.chief


def test_a_package_may_offer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("Guard", f"{__name__}:Guard", ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", EntryPoints([point]).select)
    chief = {"key": "chief", "value": {"stringVal": "BASIC_USER-ann"}}
    made = make(authorizer={"name": "Guard", "settings": [chief]})
    assert made.allows(ConnectAdmin(), ANN)
    assert not made.allows(ConnectClient(), ANYBODY)
    with pytest.raises(ConfigError) as failure:
        make(authorizer={"name": "Guard"})
    assert "cannot be started: KeyError: 'chief'" in str(failure.value)
