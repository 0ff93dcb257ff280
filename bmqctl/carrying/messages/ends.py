"""The options by which the commands for messages reach brokers."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from bmqctl.carrying.bridge.ends import CannotBegin

__all__ = ["CannotBegin", "Reach", "access_keys", "check_authority"]


class Reach(NamedTuple):
    """Options for reaching brokers. For RocketMQ `data` is an access key and its secret."""

    name: str
    authority: Path | None = None
    mechanism: str | None = None
    data: str = ""
    timeout_s: float = 10.0


def access_keys(reach: Reach) -> tuple[str, str] | None:
    """The access key and the secret of a RocketMQ user, if given. Raises `CannotBegin`."""
    if reach.mechanism is not None:
        raise CannotBegin("--authn-mechanism is for BlazingMQ: a topic's brokers need --authn-data KEY:SECRET only")
    key, colon, secret = reach.data.partition(":")
    if reach.data and not (key and colon and secret):
        raise CannotBegin("--authn-data: expected KEY:SECRET, the access key and the secret of a user of RocketMQ")
    return (key, secret) if reach.data else None


def check_authority(authority: Path | None) -> Path | None:
    """Check a file of trusted certificates. Raises `CannotBegin`."""
    if authority is None:
        return None
    try:
        ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise CannotBegin(f"--tls-authority {authority}: has no certificates in PEM") from None
    except OSError as fault:
        raise CannotBegin(f"--tls-authority {authority}: {fault.strerror}") from None
    return authority
