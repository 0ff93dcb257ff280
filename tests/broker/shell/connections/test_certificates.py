"""Certificates as OpenSSL and another library see them."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from broker.shell.connections.certificates import (
    Certificate,
    SelfSignedContext,
    issue_certificate,
    make_authority,
    make_self_signed,
)

NOW_S = 1_800_000_000


@pytest.mark.parametrize("attempt", range(5))
def test_a_certificate_is_signed_with_its_own_key(attempt: int) -> None:
    made = make_self_signed("host.example", NOW_S)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    certificate.verify_directly_issued_by(certificate)
    assert load_pem_private_key(made.key, None).public_key() == certificate.public_key()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["host.example"]
    assert certificate.not_valid_before_utc.timestamp() < NOW_S
    assert certificate.not_valid_after_utc.timestamp() > NOW_S + 10 * 365 * 86_400


def test_keys_differ() -> None:
    made = [make_self_signed("host", NOW_S) for _ in range(3)]
    assert len({each.key for each in made}) == 3
    assert len({each.certificate for each in made}) == 3


def test_times_before_and_after_2050_are_as_the_standard_wants_them() -> None:
    for now_s in (NOW_S, 2_600_000_000):
        made = make_self_signed("host", now_s)
        certificate = x509.load_pem_x509_certificate(made.certificate)
        assert certificate.not_valid_before_utc.timestamp() == now_s - 86_400
        assert certificate.not_valid_after_utc.timestamp() == now_s + 20 * 365 * 86_400


def test_openssl_takes_it_and_one_process_makes_one_certificate() -> None:
    server = SelfSignedContext(ssl.PROTOCOL_TLS_SERVER)
    make_self_signed("host", NOW_S)  # what it imports may keep files open
    folder = Path("/proc/self/fd")
    descriptors = len(list(folder.iterdir()))
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    nears, fars = zip(socket.socketpair(), socket.socketpair(), strict=True)

    def serve() -> None:
        for far in fars:
            with server.wrap_socket(far, server_side=True) as sock:
                sock.sendall(sock.recv(100))

    thread = threading.Thread(target=serve)
    thread.start()
    certificates = set()
    for near in nears:
        with client.wrap_socket(near) as sock:
            sock.sendall(b"hello")
            assert sock.recv(100) == b"hello"
            certificates.add(sock.getpeercert(binary_form=True))
    thread.join()
    assert len(certificates) == 1
    assert len(list(folder.iterdir())) == descriptors


def handshake(authority: Certificate, issued: Certificate, name: str, folder: Path) -> str:
    """Connect to a server with `issued` as a client that trusts `authority`; return why the client refuses, or ""."""
    file = folder / "server.pem"
    file.write_bytes(issued.certificate + issued.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(received, sent, server_hostname=name)
    far = server.wrap_bio(sent, received, server_side=True)
    for side in (near, far, near):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def test_a_client_that_trusts_an_authority_trusts_what_it_issued(tmp_path: Path) -> None:
    now_s = int(time.time())
    authority, other = make_authority("test", now_s), make_authority("test", now_s)
    issued = issue_certificate(authority, ["node1", "localhost", "127.0.0.1", "::1"], now_s)
    for name in ("node1", "localhost", "127.0.0.1", "::1"):
        assert handshake(authority, issued, name, tmp_path) == ""
    assert "not valid for 'node2'" in handshake(authority, issued, "node2", tmp_path)
    assert handshake(other, issued, "node1", tmp_path) == "unable to get local issuer certificate"
    old = issue_certificate(authority, ["node1"], now_s - 21 * 365 * 86_400)
    assert handshake(authority, old, "node1", tmp_path) == "certificate has expired"
    # What it issued issues nothing.
    below = issue_certificate(issued, ["node1"], now_s)
    assert handshake(authority, below, "node1", tmp_path) != ""
