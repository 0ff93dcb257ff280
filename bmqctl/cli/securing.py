"""The options by which connections are secured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bmqctl.carrying.messages.ends import Reach

__all__ = ["AccessKey", "AuthnData", "AuthnMechanism", "Keys", "Security", "TlsAuthority"]

TlsAuthority = Annotated[
    Path | None,
    typer.Option(help="Connect with TLS; trust the CA certificates in this PEM file.", show_default=False),
]
AuthnMechanism = Annotated[
    str | None,
    typer.Option(help="BlazingMQ's authentication mechanism, such as BASIC; by default none.", show_default=False),
]
AuthnData = Annotated[
    str,
    typer.Option(
        help="Credentials, such as user:password; for RocketMQ an access key and its secret.",
        envvar="BMQCTL_AUTHN_DATA",
        show_default=False,
    ),
]
AccessKey = Annotated[
    str,
    typer.Option(
        help="Credentials KEY:SECRET: the access key and the secret of a user of RocketMQ.",
        envvar="BMQCTL_AUTHN_DATA",
        show_default=False,
    ),
]

TIMEOUT_S = Reach("").timeout_s


@dataclass(frozen=True, slots=True)
class Security:
    """The options by which connections to either system are secured."""

    tls_authority: TlsAuthority = None
    authn_mechanism: AuthnMechanism = None
    authn_data: AuthnData = ""

    def reach(self, command: str, timeout_s: float = TIMEOUT_S) -> Reach:
        return Reach(f"bmqctl {command}", self.tls_authority, self.authn_mechanism, self.authn_data, timeout_s)


@dataclass(frozen=True, slots=True)
class Keys:
    """The options by which connections to RocketMQ are secured."""

    tls_authority: TlsAuthority = None
    authn_data: AccessKey = ""

    def reach(self, command: str, timeout_s: float = TIMEOUT_S) -> Reach:
        return Reach(f"bmqctl {command}", self.tls_authority, None, self.authn_data, timeout_s)
