"""Headers of the PROXY protocol: those of balancers are read as they are written, all others are refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.shell.connections.proxy_header import HEADER_MAX, Header, read_header
from formats.errors import FormatError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4, V6 = 0x11, 0x21
PLACE_4, PLACE_6 = ("192.0.2.7", 56324), ("2001:db8::7", 443)


def v2(body: bytes, family: int = V4, command: int = 0x21) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2, "big") + body


def places(source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    both = (source, destination)
    packed = b"".join(ipaddress.ip_address(address).packed for address, _ in both)
    return packed + b"".join(port.to_bytes(2, "big") for _, port in both)


TLV = b"\x04\x00\x03abc"
HEADERS = [
    (b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 443\r\n", PLACE_4),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 443 1\r\n", PLACE_6),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (v2(places(PLACE_4, ("192.0.2.1", 443))), PLACE_4),
    (v2(places(PLACE_4, ("192.0.2.1", 443)) + TLV), PLACE_4),
    (v2(places(PLACE_6, ("2001:db8::1", 1)), V6), PLACE_6),
    (v2(b"", 0x00, 0x20), None),
    (v2(TLV, V4, 0x20), None),
    (v2(bytes(216), 0x31), None),
    (v2(b"", 0x00), None),
]


@pytest.mark.parametrize(("data", "source"), HEADERS)
def test_a_header_is_complete_at_its_last_byte(data: bytes, source: tuple[str, int] | None) -> None:
    assert [read_header(data[:end]) for end in range(len(data))] == [None] * len(data)
    assert read_header(data) == read_header(data + b"more") == Header(len(data), source)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "no header of the PROXY protocol"),
        (b"\x16\x03\x01\x02", "no header of the PROXY protocol"),
        (b"PROXY " + b"x" * 101, "more than 107 bytes"),
        (b"PROXY UNKNOWN" + b" " * 200 + b"\r\n", "more than 107 bytes"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 443\r\n", "no addresses"),
        (b"PROXY TCP4 192.0.2.256 192.0.2.1 1 443\r\n", "no address"),
        (b"PROXY TCP4 ::1 ::1 1 443\r\n", "no address"),
        (b"PROXY TCP6 192.0.2.7 192.0.2.1 1 443\r\n", "no address"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 65536 443\r\n", "no port"),
        (b"PROXY UDP4 192.0.2.7 192.0.2.1 1 443\r\n", "no addresses"),
        (v2(b"", V4, 0x11), "is 0x11"),
        (v2(b"", V4, 0x22), "is 0x22"),
        (v2(bytes(11)), "no room"),
        (v2(bytes(35), V6), "no room"),
        (v2(bytes(HEADER_MAX))[:16], "4112 bytes"),
    ],
)
def test_invalid_header_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        read_header(data)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=120).map(lambda rest: b"PROXY TCP4 " + rest),
        st.binary(max_size=300).map(lambda rest: SIGNATURE + b"\x21" + rest),
    )
)
def test_any_bytes_are_refused_or_a_header_of_bounded_size(data: bytes) -> None:
    try:
        found = read_header(data)
    except FormatError:
        return
    if found is None:
        assert len(data) < HEADER_MAX
        return
    assert found.size <= min(len(data), HEADER_MAX)
    assert read_header(data[: found.size]) == found
    if found.source is not None:
        ipaddress.ip_address(found.source[0])
        assert 0 <= found.source[1] <= 65_535
