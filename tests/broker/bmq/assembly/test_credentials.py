"""The making of a broker's own credentials from the configuration, and the faults of the latter."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from broker.bmq.assembly import credentials, plugins
from broker.bmq.assembly.credentials import make_credential_provider
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import AuthenticatorConfig
from broker.bmq.session.authentication import AssumedCredential
from broker.bmq.session.credentials import CredentialProvider


def make(provider: dict[str, Any] | None) -> CredentialProvider | None:
    members = {} if provider is None else {"credentialProvider": provider}
    return make_credential_provider(AuthenticatorConfig.model_validate_json(json.dumps(members)), "etc/bmqbrkrcfg.json")


def provider(name: str, **settings: str) -> dict[str, Any]:
    return {"name": name, "settings": [{"key": key, "value": {"stringVal": settings[key]}} for key in settings]}


def test_without_a_provider_a_broker_does_not_authenticate_itself() -> None:
    assert make(None) is None


def test_a_user_and_a_password() -> None:
    made = make(provider("BasicCredentialProvider", username="east1", password="se:cret"))
    assert made is not None
    assert made.credential() == AssumedCredential("BASIC", b"east1:se:cret")
    assert "se:cret" not in repr(made.credential())


@pytest.mark.parametrize(
    ("words", "path", "reason"),
    [
        (provider("BasicCredentialProvider", password="x"), "settings", "has no username"),
        (provider("BasicCredentialProvider", username="", password="x"), "settings", "has no username"),
        (provider("Vault"), "name", "is 'Vault', which no installed package provides"),
    ],
)
def test_invalid_member_is_reported_with_its_path(words: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        make(words)
    assert failure.value.json_path == f"$.appConfig.authentication.credentialProvider.{path}"
    assert reason in failure.value.reason


class Own:
    """A provider of another package."""

    blocking = True

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.realm = settings["realm"]

    def credential(self) -> AssumedCredential:
        return AssumedCredential("OWN", f"{self.realm}".encode())


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an installed package with `Own`."""
    point = EntryPoint("Own", f"{__name__}:Own", credentials.ENTRY_POINTS)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Own.__module__])
    monkeypatch.setattr(plugins, "entry_points", EntryPoints([point]).select)


@pytest.mark.usefixtures("installed")
def test_a_package_offers_a_provider() -> None:
    made = make(provider("Own", realm="here"))
    assert made is not None
    assert made.blocking
    assert made.credential() == AssumedCredential("OWN", b"here")


@pytest.mark.usefixtures("installed")
def test_the_failure_of_a_package_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be started: KeyError: 'realm'"):
        make(provider("Own"))
