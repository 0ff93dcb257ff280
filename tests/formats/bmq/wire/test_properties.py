from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.wire.application_data import (
    build_application_data,
    split_application_data,
    to_older_application_data,
)
from formats.bmq.wire.properties import (
    PROPERTIES_HEADER,
    PROPERTY_HEADER,
    Property,
    PropertyType,
    decode_properties,
    encode_properties,
    properties_size,
    to_older_encoding,
)
from formats.errors import FormatError

SIGNED = {PropertyType.SHORT: 15, PropertyType.INT32: 31, PropertyType.INT64: 63}
# Names and strings may hold any bytes; invalid UTF-8 becomes surrogates.
texts = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
values: st.SearchStrategy[tuple[PropertyType, Any]] = st.one_of(
    st.tuples(st.just(PropertyType.BOOL), st.booleans()),
    st.tuples(st.just(PropertyType.CHAR), st.binary(min_size=1, max_size=1)),
    st.tuples(st.just(PropertyType.STRING), texts),
    st.tuples(st.just(PropertyType.BINARY), st.binary(max_size=12)),
    *(st.tuples(st.just(kind), st.integers(-(1 << bits), (1 << bits) - 1)) for kind, bits in SIGNED.items()),
)
properties = st.dictionaries(texts, values, min_size=1, max_size=8).map(
    lambda items: [
        Property(name, kind, value)
        for name, (kind, value) in sorted(items.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape"))
    ]
)
TWO = [Property("a", PropertyType.INT32, 7), Property("bc", PropertyType.STRING, "xyz")]


@given(properties, st.sampled_from([0, 1, 2, 9]), st.binary(max_size=5))
def test_properties_come_back_before_any_payload(wanted: list[Property], schema_id: int, payload: bytes) -> None:
    area = encode_properties(reversed(wanted), schema_id)
    assert len(area) % 4 == 0
    assert properties_size(area + payload) == len(area)
    assert decode_properties(area + payload, schema_id) == wanted
    assert decode_properties(memoryview(area + payload), schema_id) == wanted


@given(properties)
def test_the_newer_encoding_becomes_the_older(wanted: list[Property]) -> None:
    assert to_older_encoding(encode_properties(wanted, 1) + b"payload") == encode_properties(wanted, 0)


def test_the_bytes_of_both_encodings() -> None:
    names_and_values = "61 00000007 6263 78797a" + "04040404"
    assert encode_properties(TWO, 0) == bytes.fromhex("1b000008 0002 1000 0004 0001 1800 0003 0002" + names_and_values)
    assert encode_properties(TWO, 1) == bytes.fromhex("1b000008 0002 1000 0000 0001 1800 0005 0002" + names_and_values)


def test_longer_headers_of_a_newer_sender_are_skipped() -> None:
    area = bytes.fromhex("24000005 0001 aaaa 04000001 0001 bbbb 61 01 0202")
    assert decode_properties(area, 0) == [Property("a", PropertyType.BOOL, True)]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Property("a", PropertyType.INT32, 1 << 31), "does not fit"),
        (Property("a", PropertyType.SHORT, -(1 << 15) - 1), "does not fit"),
        (Property("a", PropertyType.INT64, True), "is no INT64"),
        (Property("a", PropertyType.BOOL, 1), "is no BOOL"),
        (Property("a", PropertyType.STRING, b"x"), "is no STRING"),
        (Property("a", PropertyType.BINARY, "x"), "is no BINARY"),
        (Property("a", PropertyType.CHAR, b"xy"), "are no CHAR"),
        (Property("a" * 4096, PropertyType.BOOL, True), "too long"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(item: Property, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_properties([item], 0)


@pytest.mark.parametrize(
    "items", [[], [TWO[0], TWO[0]], [Property(str(n), PropertyType.BOOL, True) for n in range(256)]]
)
def test_none_too_many_or_the_same_are_refused(items: list[Property]) -> None:
    with pytest.raises(ValueError, match="names must differ"):
        encode_properties(items, 1)


def test_a_full_set_comes_back() -> None:
    items = [Property(f"{n:03}", PropertyType.BOOL, n % 2 == 0) for n in range(255)]
    assert decode_properties(encode_properties(items, 0), 0) == items


@pytest.mark.parametrize("schema_id", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        {"area_words": 0},
        {"area_words": 1},
        {"area_words": 9},
        {"num_properties": 0},
        {"num_properties": 5},
        {"header_size_2x": 2},
        {"property_header_size_2x": 2},
        {"property_header_size_2x": 7},
    ],
)
def test_impossible_headers_are_refused(changes: dict[str, Any], schema_id: int) -> None:
    area = bytearray(encode_properties(TWO, schema_id))
    PROPERTIES_HEADER.pack_into(area, 0, PROPERTIES_HEADER.unpack(area)._replace(**changes))
    with pytest.raises(FormatError):
        decode_properties(area, schema_id)


@pytest.mark.parametrize("schema_id", [0, 1])
@pytest.mark.parametrize(
    ("index", "changes"),
    [
        (0, {"type": 0}),
        (0, {"type": 8}),
        (0, {"type": PropertyType.INT64}),
        (0, {"type": PropertyType.CHAR}),
        (0, {"name_length": 2}),
        (0, {"name_length": 4095}),
        (0, {"value_length": 3}),
        (1, {"value_length": 4}),
        (1, {"value_length": (1 << 26) - 1}),
        (1, {"value_length": 2}),
        (1, {"name_length": 6}),
    ],
)
def test_impossible_properties_are_refused(index: int, changes: dict[str, Any], schema_id: int) -> None:
    area = bytearray(encode_properties(TWO, schema_id))
    at = PROPERTIES_HEADER.size + index * PROPERTY_HEADER.size
    PROPERTY_HEADER.pack_into(area, at, PROPERTY_HEADER.unpack(area, at)._replace(**changes))
    with pytest.raises(FormatError):
        decode_properties(area, schema_id)


@pytest.mark.parametrize("schema_id", [0, 1])
def test_an_area_without_properties_is_refused(schema_id: int) -> None:
    with pytest.raises(FormatError, match="0 properties"):
        decode_properties(bytes.fromhex("1b000002 0000 0202"), schema_id)


@pytest.mark.parametrize("schema_id", [0, 1])
def test_a_name_that_comes_twice_is_refused(schema_id: int) -> None:
    area = encode_properties([Property(name, PropertyType.BOOL, True) for name in "ab"], schema_id)
    with pytest.raises(FormatError, match="second time"):
        decode_properties(area.replace(b"b\1", b"a\1"), schema_id)


PAYLOADS = [b"x", b"x" * 1023, b"x" * 1024, b"x" * 5000]


@pytest.mark.parametrize("compression", CompressionAlgorithm)
@pytest.mark.parametrize("schema_id", [0, 1])
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("items", [[], TWO])
def test_properties_and_payload_come_back(
    items: list[Property], payload: bytes, schema_id: int, compression: CompressionAlgorithm
) -> None:
    area = encode_properties(items, schema_id) if items else b""
    data, made = build_application_data(area, payload, schema_id if items else 0, compression)
    compressible = len(payload) + (len(area) if not schema_id else 0)
    assert made == (compression if compressible >= 1024 else CompressionAlgorithm.NONE)
    split = split_application_data(memoryview(data), bool(items), schema_id if items else 0, made)
    assert (bytes(split.properties), bytes(split.payload)) == (area, payload)
    if items and schema_id:
        assert to_older_application_data(memoryview(data), made) == encode_properties(items, 0) + payload


def test_nothing_is_compressed_that_would_grow() -> None:
    payload = random.Random(1).randbytes(2000)
    assert build_application_data(b"", payload, 0, CompressionAlgorithm.ZLIB) == (payload, CompressionAlgorithm.NONE)


def test_a_fault_can_be_printed_whatever_the_name() -> None:
    area = bytearray(encode_properties([Property("\udcff\n" * 1000, PropertyType.INT32, 1)], 0))
    area[6] = 31 << 2
    with pytest.raises(FormatError, match="31 is no property type") as caught:
        decode_properties(area, 0)
    assert str(caught.value).encode().startswith(b"MessageProperties.'\\udcff\\n\\udcff\\n")
    assert len(str(caught.value)) < 100


def test_a_payload_that_is_no_stream_is_refused_where_it_begins() -> None:
    area = encode_properties(TWO, 1)
    with pytest.raises(FormatError) as caught:
        split_application_data(memoryview(area + b"payload"), True, 1, CompressionAlgorithm.ZLIB)
    assert (caught.value.path, caught.value.offset) == ("zlib", len(area))


@pytest.mark.parametrize("schema_id", [0, 1])
def test_data_that_inflates_too_far_is_refused(schema_id: int) -> None:
    area = encode_properties(TWO, schema_id)
    data, made = build_application_data(area, bytes(5000), schema_id, CompressionAlgorithm.ZLIB)
    size = 5000 if schema_id else 5000 + len(area)
    assert len(split_application_data(memoryview(data), True, schema_id, made, size).payload) == 5000
    with pytest.raises(FormatError, match="inflates to more"):
        split_application_data(memoryview(data), True, schema_id, made, size - 1)
