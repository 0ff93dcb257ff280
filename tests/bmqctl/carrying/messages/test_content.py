"""Messages as lines of JSON: what is read is what was written, and garbage is refused in one line."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.carrying.messages.content import (
    BadInput,
    Outgoing,
    payload_row,
    property_rows,
    read_message,
    to_text_properties,
)
from formats.bmq.wire.properties import Property, PropertyType

# Bytes that are no text stand in strings as surrogates.
TEXTS = st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
PROPERTIES = st.one_of(
    st.builds(Property, NAMES, st.just(PropertyType.BOOL), st.booleans()),
    st.builds(Property, NAMES, st.just(PropertyType.SHORT), st.integers(-(1 << 15), (1 << 15) - 1)),
    st.builds(Property, NAMES, st.just(PropertyType.INT64), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(Property, NAMES, st.just(PropertyType.CHAR), st.binary(min_size=1, max_size=1)),
    st.builds(Property, NAMES, st.just(PropertyType.BINARY), st.binary()),
    st.builds(Property, NAMES, st.just(PropertyType.STRING), TEXTS),
)


@given(st.binary(), st.lists(PROPERTIES, unique_by=lambda each: each.name))
def test_a_message_that_is_written_is_read_as_it_was(payload: bytes, properties: list[Property]) -> None:
    row = {"guid": "40", **payload_row(payload), "properties": property_rows(properties)}
    assert read_message(json.dumps(row).encode()) == Outgoing(payload, properties, None, [], None)


def test_fields_of_a_topic_are_read() -> None:
    line = b'{"payload": "x", "tag": "paid", "keys": ["a", "b"], "sharding_key": "c", "delay_s": 1.5, "offset": 7}'
    assert read_message(line) == Outgoing(b"x", [], "paid", ["a", "b"], "c", 1.5)
    assert read_message(b'{"payload": "x", "priority": 7}') == Outgoing(b"x", [], None, [], None, None, 7)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is not JSON: Expecting value at column 1"),
        (b"{", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"[]", "expected a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"payload": ' + b"9" * 5000 + b"}", "a number is too long"),
        (b'{"payload": NaN}', "is not JSON: NaN"),
        (b'{"payload": 1}', "payload: expected a text"),
        (b'{"payload": "\\ud800"}', "half of a surrogate pair"),
        (b'{"payload": "a", "payload": "b"}', '"payload" comes twice'),
        (b'{"payload": "a", "payload_base64": "Yg=="}', "not both"),
        *(
            (b'{"delay_s": %s}' % value, "delay_s: expected a number of seconds")
            for value in (b"-1", b"true", b'"1"', b"1e999", b"3153600001")
        ),
        *(
            (b'{"priority": %s}' % value, "priority: expected a whole number from 0 to 2,147,483,647")
            for value in (b"-1", b"true", b'"1"', b"1.0", b"2147483648")
        ),
        (b'{"payload_base64": "!"}', "payload_base64: is not base64"),
        (b'{"payload_base64": 1}', "payload_base64: is not base64"),
        (b'{"data": "a"}', 'unknown field "data"'),
        (b'{"properties": []}', "properties: expected an object"),
        (b'{"properties": {"a": 1, "a": 2}}', '"a" comes twice'),
        (b'{"properties": {"a": 1.5}}', "no whole number"),
        (b'{"properties": {"a": null}}', "no whole number"),
        (b'{"properties": {"a": {"type": "FLOAT", "value": 1}}}', "expected type"),
        (b'{"properties": {"a": {"type": ["INT32"], "value": 1}}}', "expected type"),
        (b'{"properties": {"a": {"type": "BINARY", "value": "AA=="}}}', "base64 for BINARY"),
        (b'{"properties": {"a": {"type": "INT32", "value": true}}}', "true is no INT32"),
        (b'{"properties": {"a": {"type": "INT32", "value": 1, "unit": "m"}}}', "expected type"),
        (b'{"keys": "a"}', "keys: expected a list of texts"),
        (b'{"tag": 1}', "tag: expected a text"),
    ],
)
def test_invalid_message_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_message(line)
    assert reason in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_refused(line: bytes) -> None:
    with suppress(BadInput):
        assert isinstance(read_message(line), Outgoing)


def test_properties_of_rocketmq_are_texts() -> None:
    given_ = [
        Property("a", PropertyType.BOOL, True),
        Property("b", PropertyType.INT64, -5),
        Property("c", PropertyType.STRING, "x"),
    ]
    assert to_text_properties(given_) == {"a": "true", "b": "-5", "c": "x"}
    with pytest.raises(BadInput, match="RocketMQ has texts, and no BINARY"):
        to_text_properties([Property("d", PropertyType.BINARY, b"\0")])
