"""TLS follows its files: a later connection uses what they hold, and what cannot be used changes nothing."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from broker.bmq.assembly import certificates
from broker.bmq.assembly.certificates import accepting_context
from broker.bmq.config import ConfigError
from broker.bmq.config.broker_schema import TlsConfig
from broker.rocketmq.assembly.tls import make_tls
from broker.rocketmq.config.node import PropertyError
from broker.rocketmq.config.tls import TlsMode, TlsOptions
from broker.shell.connections import reloading
from broker.shell.connections.reloading import SETTLE_S, TlsContext, is_settled
from tests.broker.shell.connections.handshakes import Files, client, shake_hands

Make = Callable[..., TlsContext]
NS = 1_000_000_000


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(reloading, "LOOK_S", 0.0)
    monkeypatch.setattr(reloading, "SETTLE_S", 0.0)
    return Files(tmp_path)


def blazingmq(files: Files, crl: Path | None = None) -> TlsContext:
    names = {"certificateAuthority": files.trust, "certificate": files.certificate, "key": files.key}
    if crl is not None:
        names["certificateRevocationList"] = crl
    members = {name: str(path) for name, path in names.items()}
    members["clientCertificate"] = "NONE" if crl is None else "REQUIRED"
    return accepting_context(TlsConfig.model_validate_json(json.dumps(members)), "f")


def rocketmq(files: Files, crl: Path | None = None) -> TlsContext:
    asked = ssl.CERT_NONE if crl is None else ssl.CERT_REQUIRED
    options = TlsOptions(TlsMode.ENFORCING, files.certificate, files.key, True, asked, files.trust, crl)
    made = make_tls(options).accepts
    assert made is not None
    return made


both = pytest.mark.parametrize("make", [blazingmq, rocketmq])


@both
def test_a_connection_uses_the_certificate_that_the_files_hold(make: Make, files: Files) -> None:
    listener = make(files)
    for _ in range(2):
        serial = files.issue()
        assert shake_hands(listener, client(trust=files.trust)) == serial


@both
def test_files_that_cannot_be_used_are_one_alarm_and_change_nothing(
    make: Make, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    serial, listener = files.issue(), make(files)
    dialer = client(trust=files.trust)
    for spoil in (lambda: files.certificate.write_text("no certificate"), files.key.unlink):
        caplog.clear()
        spoil()
        assert [shake_hands(listener, dialer) for _ in range(2)] == [serial] * 2
        (alarm,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert alarm.startswith("ALARM [TLS] the new files cannot be used, and new connections use the former: ")
    serial = files.issue()
    assert shake_hands(listener, dialer) == serial


@both
def test_a_revoked_certificate_is_refused_since_its_list_says_so(make: Make, files: Files) -> None:
    good, bad = files.authority.issue_cert("good"), files.authority.issue_cert("bad")
    serial = files.issue()
    files.revoke()
    listener = make(files, files.revoked)
    assert [shake_hands(listener, client(each)) for each in (good, bad)] == [serial, serial]
    files.revoke(bad)
    assert [shake_hands(listener, client(each)) for each in (good, bad)] == [serial, "certificate revoked"]


@both
def test_a_file_without_a_list_is_refused(make: Make, files: Files) -> None:
    with pytest.raises((ConfigError, PropertyError), match="no list of revoked certificates"):
        make(files, files.trust)


def test_a_list_that_revokes_nothing_is_refused(files: Files) -> None:
    """The list has no effect if clients are not asked for certificates."""
    files.issue()
    files.revoke()
    for ask in ("NONE", "REQUIRED"):
        names = {"certificateAuthority": files.trust, "certificate": files.certificate, "key": files.key}
        members = {name: str(path) for name, path in names.items()}
        members |= {"certificateRevocationList": str(files.revoked), "clientCertificate": ask}
        config = TlsConfig.model_validate_json(json.dumps(members))
        with nullcontext() if ask == "REQUIRED" else pytest.raises(ConfigError, match=r"set .clientCertificate."):
            accepting_context(config, "f")


def test_a_file_that_vanishes_while_it_is_read_is_an_alarm(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serial, listener = files.issue(), blazingmq(files)
    files.issue()

    def vanish(path: str, member: str, file: str) -> None:
        files.certificate.unlink(missing_ok=True)

    monkeypatch.setattr(certificates, "_check_readable", vanish)
    assert shake_hands(listener, client(trust=files.trust)) == serial
    assert "ALARM [TLS] the new files cannot be used" in caplog.text


def test_a_file_is_read_once_it_has_settled() -> None:
    def changed(at_s: float) -> tuple[int, int, int, int, int]:
        return (1, 2, 3, 4, int(at_s * NS))

    assert is_settled([changed(100), None], int((100 + SETTLE_S) * NS))
    assert not is_settled([changed(100), changed(101)], int((100 + SETTLE_S) * NS))
    # The clock was set back.
    assert is_settled([changed(100)], 50 * NS)
