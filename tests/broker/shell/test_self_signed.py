"""A certificate that vouches for itself, as OpenSSL and another library see it."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from broker.shell import self_signed as module
from broker.shell.self_signed import load_self_signed, make_self_signed

NOW_S = 1_800_000_000


@pytest.mark.parametrize("attempt", range(5))
def test_a_certificate_is_signed_with_its_own_key(attempt: int) -> None:
    made = make_self_signed("host.example", NOW_S)
    certificate = x509.load_pem_x509_certificate(made.certificate.encode())
    certificate.verify_directly_issued_by(certificate)
    assert load_pem_private_key(made.key.encode(), None).public_key() == certificate.public_key()
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
        certificate = x509.load_pem_x509_certificate(made.certificate.encode())
        assert certificate.not_valid_before_utc.timestamp() == now_s - 86_400
        assert certificate.not_valid_after_utc.timestamp() == now_s + 20 * 365 * 86_400


def test_openssl_takes_it() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = Path("/proc/self/fd")
    descriptors = len(list(folder.iterdir()))
    load_self_signed(server, "localhost")
    assert len(list(folder.iterdir())) == descriptors
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    near, far = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as sock:
            sock.sendall(sock.recv(100))

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(near) as sock:
        sock.sendall(b"hello")
        assert sock.recv(100) == b"hello"
    thread.join()


def test_multiples_of_the_base_point() -> None:
    # From the test vectors for P-256 (nist.gov, point multiplication): 2 G, and -G by the order less one.
    assert module._times(2, module._BASE) == (
        0x7CF27B188D034F7E8A52380304B51AC3C08969E277F21B35A60B48FC47669978,
        0x07775510DB8ED040293D9AC69F7430DBBA7DADE63CE982299E04B79D227873D1,
    )
    assert module._times(module._N - 1, module._BASE) == (module._BASE[0], module._P - module._BASE[1])


def test_it_takes_little_time() -> None:
    began = time.thread_time()
    make_self_signed("host", NOW_S)
    assert time.thread_time() - began < 1
