"""The configuration of TLS: that of a node's ports, and of the connections that it makes (source: TlsSystemConfig)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = ["CLIENT_CERTIFICATES", "TlsMode", "TlsOptions"]

# By the original's words, whether clients of a port have to show a certificate.
CLIENT_CERTIFICATES: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


class TlsMode(Enum):
    """The connections that ports take: plain ones, those with TLS beside them, or the latter alone."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The files are in PEM. Without a certificate, a node makes one that proves nothing, if `makes_own` is set.

    Clients show certificates of the authority `client_trust`, as `client_certificates` says, and none that the list
    `client_crl` revokes. `dials` chooses TLS for connections to other nodes; None leaves that to the mode, of which
    only ENFORCING chooses it. These nodes prove their identity by certificates of the authority `dial_trust`; without
    one, nothing is verified.
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
        """True if connections to other nodes use TLS."""
        return self.mode is TlsMode.ENFORCING if self.dials is None else self.dials
