"""Addresses of brokers."""

from __future__ import annotations

import pytest

from bmqctl.client.address import BadAddress, parse_address


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tcp://broker.example:1234", ("broker.example", 1234)),
        ("tcp://10.0.0.5:65535/", ("10.0.0.5", 65535)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:30114", ("::1", 30114)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, wanted: tuple[str, int]) -> None:
    assert parse_address(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        ":1",
        "x:",
        "x:0",
        "x:y",
        "x:70000",
        "[x:1",
        "a b:1",
        "http://x:1",
        "tcp://",
        "tcp://x",
        "tcp://[x:1",
        "tcp://x:1/y",
    ],
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress, match="is not the address of a broker: expected tcp://HOST:PORT"):
        parse_address(text)
