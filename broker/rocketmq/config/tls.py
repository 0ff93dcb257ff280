"""The configuration of TLS for a node's ports, and for its connections to others (source: TlsSystemConfig)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = ["CLIENT_CERTIFICATES", "TlsMode", "TlsOptions"]

# By the original's words, whether clients of a port must show a certificate.
CLIENT_CERTIFICATES: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


class TlsMode(Enum):
    """The connections that ports take: plain ones, both kinds, or TLS alone."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The files are in PEM. Without a certificate, a node makes one that proves nothing, if `makes_own`.

    By `client_certificates`, clients show certificates of the authority `client_trust`, none of them revoked by the
    list `client_crl`. `dials` chooses TLS for connections to other nodes; None leaves that to the mode, of which only
    ENFORCING chooses it. These nodes prove their identity by certificates of the authority `dial_trust`; without one,
    nothing is verified.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    certificate: Path | None = None
    key: Path | None = None
    makes_own: bool = True
    client_certificates: ssl.VerifyMode = ssl.CERT_NONE
    client_trust: Path | None = None
    client_crl: Path | None = None
    dials: bool | None = None
    dial_trust: Path | None = None

    @property
    def is_dialing(self) -> bool:
        return self.mode is TlsMode.ENFORCING if self.dials is None else self.dials
