"""The properties about access control, of which some are secrets (source: AuthConfig)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.assembly.property_readers import PropertyError, raise_first, read_bool
from formats.errors import FormatError
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.access import UserInfo

__all__ = ["ACCESS_READERS", "read_access", "read_value"]


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


def _secret_pair(name: str, password: str) -> Callable[[str], UserInfo]:
    """Read a name and a password from a JSON object. What is told of a fault has no password."""

    def read(text: str) -> UserInfo:
        try:
            value = fastjson.loads(text)
        except FormatError:
            value = None
        pair = (value.get(name), value.get(password)) if isinstance(value, dict) else ()
        if len(pair) != 2 or not all(isinstance(each, str) and each.strip() for each in pair):
            raise ValueError(f'is not like {{"{name}":"...","{password}":"..."}}')
        return UserInfo(pair[0], pair[1], "Super", "enable")

    return read


# What is configured of access control. Values may be secrets: nobody is shown them, or told them when they are wrong.
ACCESS_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "authenticationEnabled": read_bool,
    "authorizationEnabled": read_bool,
    "authenticationWhitelist": _codes,
    "authorizationWhitelist": _codes,
    "initAuthenticationUser": _secret_pair("username", "password"),
    "innerClientAuthenticationCredentials": _secret_pair("accessKey", "secretKey"),
    "peerSecretKey": _peer_secret,  # not one of the original's
    "migrateAuthFromV1Enabled": read_bool,
    "aclEnable": read_bool,
}


def read_value(path: Path, name: str, text: str) -> Any:
    """The value of one of these properties. Raises `PropertyError`, which does not tell the value."""
    try:
        return ACCESS_READERS[name](text)
    except ValueError as error:
        raise PropertyError(f"{path}: {name}: its value {error}") from None


def read_access(path: Path, properties: dict[str, str]) -> dict[str, Any]:
    """The fields of the configuration that are about access control. Raises `PropertyError`."""
    found: dict[str, Any] = {}
    faults = []
    for name in ACCESS_READERS:
        if properties.get(name):
            try:
                found[name] = read_value(path, name, properties[name])
            except PropertyError as fault:
                faults.append(fault)
    raise_first(faults)
    is_first = found.get("aclEnable", False)
    options = AccessOptions(
        found.get("authenticationEnabled", is_first),
        found.get("authorizationEnabled", is_first),
        found.get("authenticationWhitelist", frozenset()),
        found.get("authorizationWhitelist", frozenset()),
    )
    accounts = path.with_name("plain_acl.yml") if is_first or found.get("migrateAuthFromV1Enabled") else None
    return {
        "access": options,
        "first_user": found.get("initAuthenticationUser"),
        "inner_credentials": found.get("innerClientAuthenticationCredentials"),
        "peer_secret": found.get("peerSecretKey"),
        "plain_accounts": accounts,
    }
