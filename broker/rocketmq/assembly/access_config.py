"""The properties about access control, of which some are secrets (source: AuthConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.assembly.property_readers import BOOL, Kind, PropertyError, raise_first
from broker.rocketmq.assembly.property_tables import Property
from formats.errors import FormatError
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.access import UserInfo

__all__ = ["ACCESS", "read_access", "read_value"]


def _codes(text: str) -> frozenset[int]:
    # Beside the codes of requests stand names of another protocol, which is not spoken here.
    codes = map(read_digits, text.replace(",", " ").split())
    return frozenset(code for code in codes if code is not None)


# Minimum length of a secret: an eavesdropper of a proof can try guesses offline.
SECRET_CHARS_MIN: Final = 16


def _peer_secret(text: str) -> bytes:
    secret = text.strip().encode()
    if len(secret) < SECRET_CHARS_MIN:
        raise ValueError(f"has fewer than {SECRET_CHARS_MIN} characters")
    return secret


def _secret_pair(name: str, password: str) -> Kind:
    """Return the kind of a name and a password in a JSON object. Texts of faults have no password."""

    def read(text: str) -> UserInfo:
        try:
            value = fastjson.loads(text)
        except FormatError:
            value = None
        pair = (value.get(name), value.get(password)) if isinstance(value, dict) else ()
        if len(pair) != 2 or not all(isinstance(each, str) and each.strip() for each in pair):
            raise ValueError(f'is not like {{"{name}":"...","{password}":"..."}}')
        return UserInfo(pair[0], pair[1], "Super", "enable")

    return Kind(read, f'JSON, {{"{name}":"...","{password}":"..."}}')


_CODES: Final = Kind(_codes, "codes of requests, separated by commas")
_SECRET: Final = Kind(_peer_secret, f"text of {SECRET_CHARS_MIN} characters or more")

# Access control. Values may be secrets: they are neither shown nor quoted in errors.
ACCESS: Final[Mapping[str, Property]] = {
    "authenticationEnabled": Property(BOOL, "authentication", "check that each request is signed by a user"),
    "authorizationEnabled": Property(BOOL, "authorization", "check that the user may have it carried out"),
    "authenticationWhitelist": Property(_CODES, "authentication_white_list", "requests that need no signature"),
    "authorizationWhitelist": Property(_CODES, "authorization_white_list", "requests that every user may send"),
    "initAuthenticationUser": Property(
        _secret_pair("username", "password"), "first_user", "user that is created if there is none of its name"
    ),
    "innerClientAuthenticationCredentials": Property(
        _secret_pair("accessKey", "secretKey"), "inner_credentials", "user as whom this node signs requests"
    ),
    "peerSecretKey": Property(
        _SECRET, "peer_secret", "secret by which the nodes of a group recognize each other", True
    ),
    "migrateAuthFromV1Enabled": Property(BOOL, "migrates", "take the accounts of ACL 1.0 from `plain_acl.yml`"),
    "aclEnable": Property(BOOL, "is_first", "the same, and check access"),
}


def read_value(path: Path, name: str, text: str) -> Any:
    """The value of one of these properties. Raises `PropertyError`, whose text does not have the value."""
    try:
        return ACCESS[name].kind.read(text)
    except ValueError as error:
        raise PropertyError(f"{path}: {name}: its value {error}") from None


def read_access(path: Path, properties: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the configuration that are about access control. Raises `PropertyError`."""
    found: dict[str, Any] = {}
    faults = []
    for name, declared in ACCESS.items():
        if properties.get(name):
            try:
                found[declared.field] = read_value(path, name, properties[name])
            except PropertyError as fault:
                faults.append(fault)
    raise_first(faults)
    is_first = found.pop("is_first", False)
    plain = found.pop("migrates", False) or is_first
    others = ("first_user", "inner_credentials", "peer_secret")
    whole: dict[str, Any] = {name: found.pop(name) for name in others if name in found}
    checks: dict[str, Any] = {"authentication": is_first, "authorization": is_first, **found}
    return {
        **whole,
        "access": AccessOptions(**checks),
        "plain_accounts": path.with_name("plain_acl.yml") if plain else None,
    }
