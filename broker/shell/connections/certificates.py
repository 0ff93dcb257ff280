"""A self-signed certificate for a process without a configured one.

Some of RocketMQ's clients use TLS by default and do not verify the certificate. The original makes one for them
(source: ProxyAndTlsProtocolNegotiator). It proves no identity; that needs a configured certificate.

`cryptography` is imported when the first certificate is made: that takes 50 ms of a start.
"""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from broker.shell.host.calls import HOST

__all__ = [
    "SELF_SIGNED_MODULES",
    "SelfSigned",
    "SelfSignedContext",
    "make_self_signed",
]

# The modules of `cryptography` that take most time to import.
SELF_SIGNED_MODULES = ("cryptography.x509", "cryptography.hazmat.primitives.serialization")

_BEFORE = timedelta(days=1)
_AFTER = timedelta(days=20 * 365)


class SelfSigned(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


def make_self_signed(name: str, now_s: int) -> SelfSigned:
    """Make a key on P-256 and a certificate for a host, valid from a day before `now_s` until 20 years after it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(now_s, UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    key_text = key.private_bytes(encoding, serialization.PrivateFormat.TraditionalOpenSSL, no_password)
    return SelfSigned(certificate.public_bytes(encoding), key_text)


class SelfSignedContext(ssl.SSLContext):
    """TLS with a self-signed certificate for `localhost`, which is made before the first handshake."""

    _is_loaded = False

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """Raises `OSError` where OpenSSL cannot be given a file."""
        if not self._is_loaded:
            made = make_self_signed("localhost", int(time.time()))
            HOST.load_certificate(self, made.certificate + made.key)
            self._is_loaded = True
        return super().wrap_socket(
            sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, server_hostname, session
        )
