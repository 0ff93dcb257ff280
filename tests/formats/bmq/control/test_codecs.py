"""Any message survives both codecs; no bytes make a decoder raise anything but FormatError."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import AuthenticationMessage, ControlMessage, ElectorMessage, NegotiationMessage
from formats.bmq.control.schema import (
    Boolean,
    Choice,
    Description,
    Element,
    Enumeration,
    Integer,
    Kind,
    Octets,
    Text,
    describe,
)
from formats.errors import FormatError

# The machine may be busy, and a run must be repeatable.
steady = settings(deadline=None, derandomize=True)

ROOTS = [ControlMessage, NegotiationMessage, AuthenticationMessage, ElectorMessage]


def values(kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case Integer():
            edges = [kind.low, kind.high, 127, 128, 255, 256, 0x7FFFFFFF]
            return st.sampled_from(edges) | st.integers(kind.low, kind.high)
        case Boolean():
            return st.booleans()
        case Text():
            return st.text(max_size=20) | st.sampled_from(["x" * 127, "x" * 128, 'a/b"c\\\n\x00\u2028'])
        case Octets():
            return st.binary(max_size=20)
        case Enumeration(cls):
            return st.sampled_from(list(cls))
        case Choice(alternatives):
            return st.one_of([values(alternative.description) for alternative in alternatives])
        case Description():
            return st.deferred(lambda: message(kind))


def element(part: Element) -> st.SearchStrategy[Any]:
    one = values(part.kind)
    if part.array:
        return st.lists(one, max_size=2).map(tuple)
    return st.none() | one if part.optional else one


def message(description: Description) -> st.SearchStrategy[Any]:
    return st.builds(description.cls, **{part.attribute: element(part) for part in description.elements})


MESSAGES = st.sampled_from(ROOTS).flatmap(lambda cls: message(describe(cls)))


@pytest.mark.slow
@steady
@given(MESSAGES)
def test_ber_round_trip(value: Any) -> None:
    written = ber.encode(value)
    assert ber.decode_from(type(value), written, 0) == (value, len(written))
    assert ber.decode_from(type(value), b"before" + written + b"\x00\x00", 6) == (value, 6 + len(written))
    assert ber.decode(type(value), bytearray(written)) == value


@pytest.mark.slow
@steady
@given(MESSAGES)
def test_json_round_trip(value: Any) -> None:
    written = jsonc.encode(value)
    assert jsonc.decode(type(value), written) == value
    assert jsonc.decode(type(value), b" \n" + written + b"\x03\x03\x03") == value


@pytest.mark.slow
@steady
@given(MESSAGES)
def test_every_cut_of_a_message_is_refused(value: Any) -> None:
    written = ber.encode(value)
    for size in range(len(written)):
        with pytest.raises(FormatError):
            ber.decode(type(value), written[:size])
    written = jsonc.encode(value)
    for size in range(len(written)):
        with pytest.raises(FormatError):
            jsonc.decode(type(value), written[:size])


T = TypeVar("T")


def tried(decode: Callable[[], T]) -> T | FormatError:
    try:
        return decode()
    except FormatError as fault:
        return fault


# Bytes that get past the first checks: identifiers, indefinite lengths, ends.
BER_LIKE = st.lists(
    st.sampled_from([b"\x30\x80", b"\xa0\x80", b"\xa1\x80", b"\xa9\x80", b"\x00\x00", b"\x80\x01\x01", b"\xbf\x81\x01"])
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


@steady
@given(st.sampled_from(ROOTS), st.binary(max_size=200) | BER_LIKE | BER_LIKE.map(lambda tail: b"\x30\x80" + tail))
def test_ber_raises_only_format_errors(cls: type[Any], data: bytes) -> None:
    outcome = tried(lambda: ber.decode_from(cls, data, 0))
    if isinstance(outcome, FormatError):
        assert outcome.path.startswith(cls.__name__)
        assert 0 <= outcome.offset <= len(data)
    else:
        value, end = outcome
        assert 0 < end <= len(data)
        assert ber.decode(cls, ber.encode(value)) == value


@pytest.mark.slow
@steady
@given(MESSAGES, st.data())
def test_a_damaged_message_is_read_or_refused(value: Any, data: st.DataObject) -> None:
    for codec in (ber, jsonc):
        written = bytearray(codec.encode(value))
        for _ in range(data.draw(st.integers(1, 3))):
            written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
        again = tried(partial(codec.decode, type(value), bytes(written)))
        if not isinstance(again, FormatError):
            assert codec.decode(type(value), codec.encode(again)) == again


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["rId", "choice", "openQueue", "handleParameters", "uri", "flags", "term", "status", "other"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@pytest.mark.slow
@steady
@given(st.sampled_from(ROOTS), JSON_LIKE)
def test_json_raises_only_format_errors(cls: type[Any], found: Any) -> None:
    outcome = tried(lambda: jsonc.decode(cls, json.dumps(found).encode()))
    if isinstance(outcome, FormatError):
        assert outcome.path.startswith(cls.__name__)
    else:
        assert jsonc.decode(cls, jsonc.encode(outcome)) == outcome


@steady
@given(st.sampled_from(ROOTS), st.binary(max_size=60))
def test_bytes_that_are_not_json_are_refused(cls: type[Any], data: bytes) -> None:
    with pytest.raises(FormatError):
        jsonc.decode(cls, data)
