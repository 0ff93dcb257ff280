"""Handshakes of TLS over a pair of sockets; files of an authority, and its list of revoked certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from broker.shell.connections.reloading import TlsContext
from tests.waiting import WAIT_S

__all__ = ["Files", "client", "shake_hands"]


class Files:
    """The certificate of an authority, and one with its key that it has issued, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.trust, self.certificate, self.key = (folder / f"{name}.pem" for name in ("ca", "node", "node-key"))
        self.revoked = folder / "revoked.pem"
        self.authority.cert_pem.write_to_path(self.trust)
        self.issue()

    def issue(self) -> str:
        """Replace the certificate and its key; return the serial number."""
        made = self.authority.issue_cert("localhost")
        self.certificate.write_bytes(made.cert_chain_pems[0].bytes())
        self.key.write_bytes(made.private_key_pem.bytes())
        return f"{_certificate(made).serial_number:X}".zfill(40)

    def revoke(self, *issued: trustme.LeafCert) -> None:
        """Replace the list of revoked certificates."""
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        issuer = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes()).subject
        day, now = timedelta(days=1), datetime.now(UTC)
        made = x509.CertificateRevocationListBuilder(issuer, now - day, now + day)
        for each in issued:
            entry = x509.RevokedCertificateBuilder(_certificate(each).serial_number, now - day)
            made = made.add_revoked_certificate(entry.build())
        self.revoked.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _certificate(issued: trustme.LeafCert) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())


def client(issued: trustme.LeafCert | None = None, trust: Path | None = None) -> ssl.SSLContext:
    """A client that shows a certificate, if it has one, and checks that of its peer if it trusts an authority."""
    context = ssl.create_default_context(cafile=trust)
    if trust is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if issued is not None:
        issued.configure_cert(context)
    return context


def shake_hands(listener: TlsContext, dialer: ssl.SSLContext) -> str:
    """Begin TLS; return the serial number that the client is shown, or the reason for which the listener refuses."""
    near, far = socket.socketpair()
    for each in (near, far):
        each.settimeout(WAIT_S)
    reasons: list[str] = []

    def listen() -> None:
        try:
            with closing(listener.wrap_socket(far, server_side=True)) as sock:
                sock.sendall(b"x")
        except ssl.SSLError as error:
            reasons.append(getattr(error, "verify_message", "") or str(error))
            far.close()

    thread = threading.Thread(target=listen)
    thread.start()
    shown = ""
    try:
        with dialer.wrap_socket(near, server_hostname="localhost") as sock:
            sock.recv(1)
            der = sock.getpeercert(binary_form=True)
            assert der is not None
            shown = f"{x509.load_der_x509_certificate(der).serial_number:X}".zfill(40)
    except OSError:
        near.close()
    thread.join(WAIT_S)
    return reasons[0] if reasons else shown
