"""The two sides of TLS as the configuration has them: whom each asks for a certificate, and what it must be for."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from broker.bmq.assembly.certificates import make_context, make_dialing_context
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import TlsConfig


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., TlsConfig]:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "node.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "node.key")

    def make(**more: str) -> TlsConfig:
        files = {"certificateAuthority": "authority.pem", "certificate": "node.pem", "key": "node.key"}
        members = {name: str(tmp_path / file) for name, file in files.items()} | more
        return TlsConfig.model_validate_json(json.dumps(members))

    return make


def shake_hands(dialer: ssl.SSLContext, listener: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """The listener's end of a connection, once both ends have finished; ssl.SSLError if one does not."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = listener.wrap_bio(up, down, server_side=True)
    ends = [dialer.wrap_bio(down, up, server_hostname=host), theirs]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    return theirs


@pytest.mark.parametrize(("asked", "names"), [("NONE", None), ("OPTIONAL", "localhost"), ("REQUIRED", "localhost")])
def test_client_is_asked_for_a_certificate_as_configured(
    config: Callable[..., TlsConfig], asked: str, names: str | None
) -> None:
    """The dialing side shows its own certificate."""
    theirs = shake_hands(make_dialing_context(config(), "f"), make_context(config(clientCertificate=asked), "f"))
    certificate = theirs.getpeercert() or {}
    assert certificate.get("subjectAltName") == (None if names is None else (("DNS", names),))


def test_client_without_a_certificate_gets_in_where_none_is_needed(config: Callable[..., TlsConfig]) -> None:
    bare = ssl.create_default_context(cafile=config().certificate_authority)
    assert not shake_hands(bare, make_context(config(clientCertificate="OPTIONAL"), "f")).getpeercert()
    with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate"):
        shake_hands(bare, make_context(config(clientCertificate="REQUIRED"), "f"))


def test_dialed_node_needs_a_trusted_certificate_for_its_host(config: Callable[..., TlsConfig]) -> None:
    dialer = make_dialing_context(config(), "f")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(dialer, make_context(config(), "f"), "elsewhere.example.com")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(stranger)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(dialer, stranger)


def test_versions_count_for_both_sides(config: Callable[..., TlsConfig]) -> None:
    for make in (make_context, make_dialing_context):
        context = make(config(versions="TLSv1.2"), "f")
        assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError):
        shake_hands(make_dialing_context(config(versions="TLSv1.2"), "f"), make_context(config(), "f"))


@pytest.mark.parametrize("make", [make_context, make_dialing_context])
def test_files_that_cannot_be_used_are_told(
    config: Callable[..., TlsConfig], make: Callable[[TlsConfig, str], ssl.SSLContext]
) -> None:
    with pytest.raises(ConfigError, match=r"tlsConfig\.certificateAuthority: /nowhere: no such file"):
        make(config(certificateAuthority="/nowhere"), "f")
