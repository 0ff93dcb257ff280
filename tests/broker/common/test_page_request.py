"""Requests for pages: bounds, refusals and the framing of responses."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.common.page_request import HEAD_BYTES_MAX, Asked, Incomplete, PageConnection, Refused

GET = b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n"


def answer(connection: PageConnection, status: HTTPStatus = HTTPStatus.OK) -> bytes:
    return connection.head(status, "text/plain") + connection.body(b"some\n") + connection.end()


def test_a_request_that_comes_byte_by_byte() -> None:
    connection = PageConnection()
    for number in range(len(GET) - 1):
        assert connection.receive(GET[number : number + 1]) is Incomplete.WAITING
    assert connection.receive(GET[-1:]) == Asked("/metrics")
    head, body = answer(connection).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert {b"Connection: close", b"Transfer-Encoding: chunked"} <= set(head.splitlines())
    assert body == b"5\r\nsome\n\r\n0\r\n\r\n"


def test_old_clients_get_no_chunks() -> None:
    connection = PageConnection()
    assert connection.receive(b"GET /healthz HTTP/1.0\r\n\r\n") == Asked("/healthz")
    assert answer(connection).endswith(b"\r\n\r\nsome\n")


@pytest.mark.parametrize("method", [b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT"])
def test_other_methods(method: bytes) -> None:
    connection = PageConnection()
    refused = connection.receive(GET.replace(b"GET", method))
    assert isinstance(refused, Refused)
    assert refused.status is HTTPStatus.METHOD_NOT_ALLOWED
    text = answer(connection, refused.status)
    assert b"\r\nAllow: GET\r\n" in text
    assert (b"some" in text) is (method != b"HEAD")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /me trics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
    ],
)
def test_invalid_request_is_refused(data: bytes) -> None:
    connection = PageConnection()
    refused = connection.receive(data)
    assert isinstance(refused, Refused)
    assert refused.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    assert answer(connection, refused.status).startswith(f"HTTP/1.1 {refused.status.value} ".encode())


def test_a_request_that_is_too_long() -> None:
    connection = PageConnection()
    found: object = connection.receive(b"GET / HTTP/1.1\r\nHost: here\r\nX: ")
    read = 0
    while found is Incomplete.WAITING:
        data = b"x" * min(1000, connection.room)
        read += len(data)
        found = connection.receive(data)
    assert isinstance(found, Refused)
    assert found.status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    assert read <= HEAD_BYTES_MAX
    assert answer(connection, found.status).startswith(b"HTTP/1.1 431 ")


def test_a_peer_that_goes() -> None:
    assert PageConnection().receive(b"") is Incomplete.GONE
    connection = PageConnection()
    connection.receive(GET[:20])
    assert connection.receive(b"") is Incomplete.GONE


@given(st.lists(st.binary(max_size=200), max_size=100))
def test_any_bytes_are_answered_or_waited_for(parts: list[bytes]) -> None:
    connection = PageConnection()
    for data in parts:
        found = connection.receive(data[: connection.room])
        if isinstance(found, Asked | Refused):
            status = HTTPStatus.OK if isinstance(found, Asked) else found.status
            assert answer(connection, status).startswith(b"HTTP/1.1 ")
        if found is not Incomplete.WAITING:
            break
        assert connection.room > 0
