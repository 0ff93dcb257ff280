"""Certificates: a self-signed one for a process without a configured one, and those of a test authority.

Some of RocketMQ's clients use TLS by default and do not verify the certificate; the original makes one for them
(source: ProxyAndTlsProtocolNegotiator). It proves no identity. `cryptography`, which takes 50 ms, is imported when the
first certificate is made.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.shell.host.calls import HOST

if TYPE_CHECKING:
    from cryptography.x509 import CertificateBuilder, GeneralName

__all__ = [
    "SELF_SIGNED_MODULES",
    "Certificate",
    "SelfSignedContext",
    "end_of",
    "issue_certificate",
    "make_authority",
    "make_self_signed",
]

# The modules of `cryptography` that take most time to import.
SELF_SIGNED_MODULES = ("cryptography.x509", "cryptography.hazmat.primitives.serialization")

_BEFORE = timedelta(days=1)
_AFTER = timedelta(days=20 * 365)


class Certificate(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


def make_self_signed(name: str, now_s: int) -> Certificate:
    """Make a key on P-256 and a certificate for a host, valid from a day before `now_s` until 20 years after it."""
    builder, key = _builder(name, now_s)
    return _signed(builder.issuer_name(_name(name)).add_extension(_names([name]), critical=False), key, key)


def make_authority(name: str, now_s: int) -> Certificate:
    """Make a certificate that signs others, with the life of `make_self_signed`."""
    from cryptography import x509

    builder, key = _builder(name, now_s)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        builder.issuer_name(_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, key)


def issue_certificate(authority: Certificate, names: Sequence[str], now_s: int) -> Certificate:
    """Make a certificate for DNS names and IP addresses, signed by `authority`; the first is its common name."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer: Any = serialization.load_pem_private_key(authority.key, None)
    builder, key = _builder(names[0], now_s)
    builder = (
        builder.issuer_name(issuer.subject)
        .add_extension(_names(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _signed(builder, key, signer)


def end_of(pem: bytes) -> datetime:
    """Return when the first certificate in a file ends, or a list of revoked ones is outdated.

    Raises `ValueError` if it has neither.
    """
    from cryptography import x509

    if b"-----BEGIN X509 CRL-----" in pem:
        found = x509.load_pem_x509_crl(pem).next_update_utc
        return datetime.max.replace(tzinfo=UTC) if found is None else found
    return min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(pem))


def _builder(name: str, now_s: int) -> tuple[CertificateBuilder, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.fromtimestamp(now_s, UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
    )
    return builder, key


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _names(names: Sequence[str]) -> Any:
    from cryptography import x509

    def general(name: str) -> GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            return x509.DNSName(name)

    return x509.SubjectAlternativeName([general(name) for name in names])


def _signed(builder: CertificateBuilder, key: Any, signer: Any) -> Certificate:
    from cryptography.hazmat.primitives import hashes, serialization

    encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    key_text = key.private_bytes(encoding, serialization.PrivateFormat.TraditionalOpenSSL, no_password)
    return Certificate(builder.sign(signer, hashes.SHA256()).public_bytes(encoding), key_text)


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
