"""A certificate that vouches for itself, as OpenSSL and another library see it."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from broker.shell.connections.certificates import SelfSignedContext, make_self_signed

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
