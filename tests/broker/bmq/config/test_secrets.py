"""Secrets of a configuration: the broker knows them, and shows them in no dump, error or representation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from broker.bmq.assembly import authenticators, plugins
from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.dump import to_json
from broker.bmq.config.load import parse
from broker.bmq.session.authentication import AssumedCredential, Granted, Outcome

SECRET = "TOPSECRET"
FILE = "etc/bmqbrkrcfg.json"


def settings(value: Any) -> list[dict[str, Any]]:
    return [{"name": "BasicAuthenticator", "settings": [{"key": "ann", "value": value}]}]


def text(**authentication: Any) -> bytes:
    app = {"networkInterfaces": {"tcpInterface": {"port": 30114}}, "authentication": authentication}
    return json.dumps({"appConfig": app}).encode()


SOUND = text(
    authenticators=settings({"stringVal": SECRET}),
    anonymousCredential={"credential": {"mechanism": "BASIC", "identity": f"ann:{SECRET}"}},
)


def test_the_broker_knows_what_it_does_not_show() -> None:
    config = parse(Configuration, SOUND, FILE)
    made = make_authentications(config.app_config.authentication, FILE)
    assert made.anonymous is not None
    assert made.anonymous.data == b"ann:TOPSECRET"
    found: list[Outcome] = []
    made.begin("BASIC", b"ann:TOPSECRET", "10.0.0.1:5000", found.append)
    assert found == [Granted("BASIC_USER-ann", 600_000)]
    dumped = to_json(config)["appConfig"]["authentication"]
    assert dumped["authenticators"][0]["settings"][0]["key"] == "ann"
    assert dumped["anonymousCredential"]["credential"]["mechanism"] == "BASIC"
    for shown in (json.dumps(dumped), repr(config), str(config), repr(made.anonymous), f"{made.anonymous}"):
        assert SECRET not in shown


def test_a_credential_says_only_its_mechanism() -> None:
    assert repr(AssumedCredential("BASIC", b"ann:TOPSECRET")) == "AssumedCredential(mechanism='BASIC')"


@pytest.mark.parametrize(
    "authentication",
    [
        {"authenticators": settings(SECRET)},
        {"authenticators": settings([SECRET])},
        {"authenticators": settings({"intVal": SECRET})},
        {"authenticators": settings({"boolVal": SECRET})},
        {"authenticators": settings({"doubleVal": SECRET})},
        {"authenticators": settings({"stringVal": [SECRET]})},
        {"authenticators": settings({"stringVal": SECRET, "intVal": 1})},
        {"authenticators": [{"name": "BasicAuthenticator", "settings": SECRET}]},
        {"authenticators": [{"name": "BasicAuthenticator", "settings": [SECRET]}]},
        {"anonymousCredential": {"credential": SECRET}},
        {"anonymousCredential": {"credential": {"mechanism": "BASIC", "identity": [SECRET]}}},
        {"anonymousCredential": {"credential": {"mechanism": [SECRET], "identity": "x"}}},
    ],
)
def test_an_error_names_the_place_and_does_not_quote_it(authentication: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as failure:
        parse(Configuration, text(**authentication), FILE)
    assert failure.value.json_path.startswith("$.appConfig.authentication.")
    assert SECRET not in str(failure.value)


def test_numbers_may_be_secrets_too() -> None:
    with pytest.raises(ConfigError) as failure:
        parse(Configuration, text(authenticators=settings({"stringVal": 4711})), FILE)
    assert "is '********', not a string" in str(failure.value)
    with pytest.raises(ConfigError) as failure:
        parse(Configuration, text(authenticators=settings({"intVal": 4711_000_000_000})), FILE)
    assert "4711" not in str(failure.value)


def test_value_that_is_no_secret_is_quoted() -> None:
    with pytest.raises(ConfigError, match=r"minThreads: is 'many', not an integer"):
        parse(Configuration, text(minThreads="many"), FILE)
    with pytest.raises(ConfigError, match=r"authenticators\[0\].name: is 7, not a string"):
        parse(Configuration, text(authenticators=[{"name": 7}]), FILE)


def failing(given: Mapping[str, object]) -> None:
    raise ValueError(f"no server takes {given['ann']!r}")


def test_a_package_that_fails_may_quote_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("OwnAuthenticator", f"{__name__}:failing", authenticators.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", EntryPoints([point]).select)
    own = [{**settings({"stringVal": SECRET})[0], "name": "OwnAuthenticator"}]
    config = parse(Configuration, text(authenticators=own), FILE)
    with pytest.raises(ConfigError) as failure:
        make_authentications(config.app_config.authentication, FILE)
    assert "cannot be started: ValueError: no server takes '********'" in str(failure.value)
    assert failure.value.__cause__ is None
