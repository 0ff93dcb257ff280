from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rocketmq.grpc.http2.header_reader import BadHeaders, HeaderReader

Fields = list[tuple[bytes, bytes]]

REQUEST: Fields = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
    (b":authority", b"127.0.0.1:8081"),
    (b"te", b"trailers"),
    (b"x-mq-client-id", b"client@1\xe4"),
]


def changed(name: bytes, value: bytes) -> Fields:
    """Return a request with another value of one of its fields."""
    return [(each, value if each == name else before) for each, before in REQUEST]


def without(name: bytes) -> Fields:
    return [field for field in REQUEST if field[0] != name]


def test_fields_are_read_once_and_again() -> None:
    reader = HeaderReader()
    for client_id in ("client@1\xe4", "another"):
        headers = reader.read(changed(b"x-mq-client-id", client_id.encode("latin-1")))
        assert headers["x-mq-client-id"] == client_id
        assert headers[":path"].endswith("/SendMessage")
        assert len(headers) == len(REQUEST)


@pytest.mark.parametrize(
    "fields",
    [
        *(without(name) for name in (b":method", b":scheme", b":path", b":authority")),
        changed(b":path", b""),
        changed(b"te", b"gzip"),
        *(changed(b"x-mq-client-id", value) for value in (b"a\rb", b"a\nb", b"\n", b"a\0b", b" a", b"a\t", b" ")),
        *([*REQUEST, (name, b"1")] for name in (b"", b":", b"A", b"a b", b"a:b", b"\xe4", b"a\n", b"connection")),
        [*REQUEST, (b":path", b"/")],
        [*REQUEST[:4], (b":path", b"/"), *REQUEST[4:]],
        [(b":status", b"200"), *REQUEST],
        [(b":protocol", b"websocket"), *REQUEST],
        [*REQUEST, (b"host", b"elsewhere")],
        [*without(b":authority"), (b"host", b"here"), (b"host", b"here")],
    ],
    ids=lambda fields: repr(fields[-1])[:30],
)
def test_invalid_request_headers_are_refused(fields: Fields) -> None:
    reader = HeaderReader()
    reader.read(REQUEST)
    for _ in range(2):
        with pytest.raises(BadHeaders):
            reader.read(fields)


@pytest.mark.parametrize(
    "fields",
    [
        [(b":method", b"CONNECT"), (b":authority", b"there:443")],
        [*without(b":authority"), (b"host", b"here")],
        [*REQUEST, (b"host", b"127.0.0.1:8081")],
        changed(b"te", b"Trailers"),
        changed(b"x-mq-client-id", b""),
        changed(b"x-mq-client-id", b"a b\tc"),
    ],
    ids=lambda fields: repr(fields[-1])[:30],
)
def test_valid_request_headers_are_taken(fields: Fields) -> None:
    headers = HeaderReader().read(fields)
    assert {name.encode(): value.encode("latin-1") for name, value in headers.items()} == dict(fields)


@given(st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=4))
def test_nothing_else_comes_out(more: Fields) -> None:
    try:
        headers = HeaderReader().read([*REQUEST, *more])
    except BadHeaders:
        return
    assert all(name.islower() or not any(map(str.isalpha, name)) for name in headers)
    assert not any(set(value) & set("\r\n\0") for value in headers.values())


def test_no_more_names_are_kept_than_a_client_has(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = HeaderReader()
    for number in range(1000):
        reader.read([*REQUEST, (b"x-%d" % number, b"1")])
    assert len(reader._known) <= 64
