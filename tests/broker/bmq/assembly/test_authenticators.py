"""The making of authenticators from the configuration, and the faults of the latter."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from broker.bmq.assembly import authenticators, plugins
from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import AuthenticatorConfig
from broker.bmq.session.authentication import Authentications, Denied, Granted, Outcome

BASIC = {"name": "BasicAuthenticator", "settings": [{"key": "ann", "value": {"stringVal": "secret"}}]}
ANON = {"name": "AnonAuthenticator", "settings": [{"key": "shouldPass", "value": {"boolVal": False}}]}
TEST = {"name": "TestAuthenticator", "settings": [{"key": "sleepTimeMs", "value": {"intVal": 1}}]}
OWN = {"name": "OwnAuthenticator", "settings": [{"key": "realm", "value": {"stringVal": "here"}}]}


def make(**members: Any) -> Authentications:
    return make_authentications(AuthenticatorConfig.model_validate_json(to_json(members)), "etc/bmqbrkrcfg.json")


def to_json(members: dict[str, Any]) -> str:
    return json.dumps(members)


def outcome(made: Authentications, mechanism: str, data: bytes = b"") -> Outcome:
    found: list[Outcome] = []
    made.begin(mechanism, data, "10.0.0.1:5000", found.append)
    return found[0]


def test_nothing_configured_lets_everybody_be_anonymous() -> None:
    made = make()
    assert made.mechanisms == ["ANONYMOUS"]
    assert made.anonymous is not None
    assert outcome(made, made.anonymous.mechanism) == Granted("anonymous")


def test_basic_stands_beside_anonymous() -> None:
    made = make(authenticators=[BASIC])
    assert made.mechanisms == ["ANONYMOUS", "BASIC"]
    assert outcome(made, "Basic", b"ann:secret") == Granted("BASIC_USER-ann", 600_000)
    assert isinstance(outcome(made, "Basic", b"ann:"), Denied)


def test_basic_without_users_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"name": "BasicAuthenticator", "settings": [{"key": "ann", "value": {"intVal": 7}}]}
    made = make(authenticators=[wrong], anonymousCredential={"disallow": {}})
    assert "ALARM [CREDENTIALS_MISSING]" in caplog.text
    assert isinstance(outcome(made, "BASIC", b"ann:7"), Denied)


def test_a_credential_stands_for_those_who_send_none() -> None:
    made = make(
        authenticators=[BASIC],
        anonymousCredential={"credential": {"mechanism": "basic", "identity": "ann:secret"}},
    )
    assert made.anonymous is not None
    assert outcome(made, made.anonymous.mechanism, made.anonymous.data) == Granted("BASIC_USER-ann", 600_000)
    assert made.mechanisms == ["BASIC"]


def test_anonymous_access_can_be_disallowed() -> None:
    assert make(anonymousCredential={"disallow": {}}).anonymous is None


def test_anonymous_may_be_told_to_fail() -> None:
    made = make(
        authenticators=[ANON, TEST], anonymousCredential={"credential": {"mechanism": "ANONYMOUS", "identity": ""}}
    )
    assert isinstance(outcome(made, "ANONYMOUS"), Denied)
    assert outcome(made, "TEST") == Granted("TEST_USER", 600_000)


@pytest.mark.parametrize(
    ("members", "path", "reason"),
    [
        ({"authenticators": [BASIC, BASIC]}, "authenticators[1]", "is a second authenticator for mechanism BASIC"),
        ({"authenticators": [ANON]}, "anonymousCredential", "is missing"),
        (
            {
                "authenticators": [BASIC],
                "anonymousCredential": {"credential": {"mechanism": "OAuth", "identity": "x"}},
            },
            "anonymousCredential.credential.mechanism",
            "is OAUTH, for which there is no authenticator",
        ),
        ({"authenticators": [OWN]}, "authenticators[0].name", "is 'OwnAuthenticator', which no installed package"),
    ],
)
def test_invalid_member_is_reported_with_its_path(members: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        make(**members)
    assert failure.value.json_path == f"$.appConfig.authentication.{path}"
    assert reason in failure.value.reason


class Own:
    """An authenticator of another package."""

    mechanism = "OWN"
    blocking = False

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.realm = settings["realm"]

    def authenticate(self, data: bytes, peer: str) -> Granted:
        return Granted(f"{data.decode()}@{self.realm}")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an installed package with `Own`."""
    point = EntryPoint("OwnAuthenticator", f"{__name__}:Own", authenticators.ENTRY_POINTS)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Own.__module__])
    monkeypatch.setattr(plugins, "entry_points", EntryPoints([point]).select)


@pytest.mark.usefixtures("installed")
def test_package_offers_an_authenticator() -> None:
    assert outcome(make(authenticators=[OWN]), "own", b"ann") == Granted("ann@here")


@pytest.mark.usefixtures("installed")
def test_failure_of_a_package_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be started: KeyError: 'realm'"):
        make(authenticators=[{"name": "OwnAuthenticator"}])
