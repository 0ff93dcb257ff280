"""TLS on the port for gRPC where no certificate is given."""

from __future__ import annotations

import sys

import pytest

from broker.rocketmq.assembly.grpc import TLS_NAMES, tls_for_grpc


def test_without_the_extra_there_is_no_tls_and_the_note_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, note = tls_for_grpc(None, None, TLS_NAMES)
    assert made is not None
    assert note == ""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr(sys, "meta_path", [])
    made, note = tls_for_grpc(None, None, TLS_NAMES)
    assert made is None
    assert "set tlsCertPath and tlsKeyPath, or install the extra tls of bmqctl" in note


def test_no_note_where_nobody_wants_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert tls_for_grpc(None, None, TLS_NAMES, makes_own=False) == (None, "")
