"""An authority, the certificate that it gives this host, and clients that trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme

from bmqctl.systems.node_process import HOST

__all__ = ["Authority"]


class Authority:
    """An authority with a certificate for this host, and contexts of clients."""

    def __init__(self, folder: Path) -> None:
        self._ca, folder = trustme.CA(), folder / "tls"
        folder.mkdir()
        self.trust, self.chain, self.key = folder / "ca.pem", folder / "chain.pem", folder / "key.pem"
        self._ca.cert_pem.write_to_path(self.trust)
        self.certificate = {"tlsCertPath": self.chain, "tlsKeyPath": self.key}
        self.issue()

    def issue(self) -> None:
        """Replace the files of the certificate and its key."""
        certificate = self._ca.issue_cert(HOST)
        self.chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(self.key)

    def client(self, *, is_known: bool = False) -> ssl.SSLContext:
        """A context that trusts the authority and, if it is known, has a certificate itself."""
        context = ssl.create_default_context(cafile=self.trust)
        if is_known:
            self._ca.issue_cert("client").configure_cert(context)
        return context
