"""Refusals of `bmqctl console`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bmqctl.app import app


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--broker", "nowhere"), "--broker nowhere: expected tcp://HOST:PORT"),
        (("--broker", "tcp://h:1", "--broker", "nowhere"), "--broker nowhere: expected tcp://HOST:PORT"),
        (("--certificate", "a.pem"), "--certificate and --key go together"),
        (("--certificate", "/nowhere", "--key", "/nowhere"), "--certificate: /nowhere: No such file or directory"),
        (("--broker", "tcp://h:1", "--nameserver", "h:1"), "--broker is for BlazingMQ"),
        (("--host", "192.0.2.1"), "the console cannot listen on 192.0.2.1:30180: "),
    ],
)
def test_refusals(words: tuple[str, ...], reason: str) -> None:
    found = CliRunner().invoke(app, ["console", *words])
    assert (found.exit_code, found.output.count("\n")) == (2, 1)
    assert f"bmqctl console: {reason}" in found.output
