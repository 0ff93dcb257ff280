"""The mapping of messages between the two systems: its table, and the way there and back."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bmqctl.carrying.bridge.mapping import Unfit, _kinds, _types_text, posted_guid, to_blazingmq, to_rocketmq
from bmqctl.carrying.bridge.names import _to_blazingmq, _to_rocketmq, is_system_name
from formats.bmq.wire.properties import Property, PropertyType, encode_properties
from formats.rocketmq.files.record import Magic, Record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import BatchMessage

GUID = bytes(range(16))
GUID_TEXT = "000102030405060708090A0B0C0D0E0F"
MARKS = {"bmq_guid", "rocketmq_queue", "rocketmq_offset", "rocketmq_id"}


def record(message: BatchMessage, **changes: Any) -> Record:
    """The record in which RocketMQ stores a message."""
    made = Record(
        Magic.V1,
        0,
        3,
        message.flag,
        17,
        4711,
        0,
        1,
        b"\x7f\0\0\1\0\0\0\0",
        2,
        b"\x7f\0\0\1\0\0\0\0",
        0,
        0,
        message.body,
        "t",
        message.properties,
    )
    return made._replace(**changes)


def stored(**properties: str) -> Record:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return record(BatchMessage(0, b"body", text.encode()))


def values(properties: list[Property]) -> dict[str, tuple[str, object]]:
    return {name: (kind.name, value) for name, kind, value in properties}


def test_typed_properties_are_text_there_with_their_types_beside() -> None:
    properties = [
        Property("region", PropertyType.STRING, "eu"),
        Property("amount", PropertyType.INT64, -5),
        Property("paid", PropertyType.BOOL, True),
        Property("grade", PropertyType.CHAR, b"\xff"),
        Property("raw", PropertyType.BINARY, b"\0\xff"),
        Property("KEYS", PropertyType.STRING, "a b"),
        Property("TAGS", PropertyType.STRING, "red"),
    ]
    message = to_rocketmq(b"body", properties, GUID, "ID")
    assert (message.flag, bytes(message.body)) == (0, b"body")
    assert decode_properties(message.properties) == {
        "UNIQ_KEY": "ID",
        "region": "eu",
        "amount": "-5",
        "paid": "true",
        "grade": "-1",
        "raw": "AP8=",
        "KEYS": "a b",
        "TAGS": "red",
        "bmq_guid": GUID_TEXT,
        "bmq_types": '{"amount":"INT64","paid":"BOOL","grade":"CHAR","raw":"BINARY"}',
    }


@pytest.mark.parametrize(
    "odd",
    [
        Property("DELAY", PropertyType.STRING, "5"),
        Property("UNIQ_KEY", PropertyType.STRING, "mine"),
        Property("__RMQ.TRANSIENT.x", PropertyType.STRING, "y"),
        Property("bmq_types", PropertyType.STRING, "{}"),
        Property("bmq_raw", PropertyType.STRING, "x"),
        Property("rocketmq_flag", PropertyType.STRING, "1"),
        Property("rocketmq_name_DELAY", PropertyType.STRING, "5"),
        Property("rocketmq_name_plain", PropertyType.STRING, "5"),
        Property("a\x01b", PropertyType.STRING, "5"),
        Property("a\x02b", PropertyType.INT32, 5),
        Property("a", PropertyType.STRING, "1\x01"),
        Property("a", PropertyType.STRING, "1\x022"),
        Property("a", PropertyType.STRING, ""),
        Property("a", PropertyType.BINARY, b""),
        Property("a", PropertyType.STRING, "\udcff"),
        Property("", PropertyType.STRING, "nameless"),
    ],
)
def test_property_that_rocketmq_cannot_hold_goes_encoded(odd: Property) -> None:
    message = to_rocketmq(b"", [odd], GUID, "ID")
    assert decode_properties(message.properties).keys() == {"UNIQ_KEY", "bmq_guid", "bmq_raw"}
    assert odd in to_blazingmq(record(message), "b").properties


def test_properties_that_are_too_large_are_refused() -> None:
    properties = [Property("a", PropertyType.STRING, "x" * 40_000)]
    with pytest.raises(Unfit, match=r"properties of 40,?\d+ bytes: RocketMQ takes 32767"):
        to_rocketmq(b"", properties, GUID, "ID")


def test_bodies_for_which_a_broker_closes_the_connection_are_refused() -> None:
    with pytest.raises(Unfit, match=r"a body of 16777216 bytes: RocketMQ takes 15728640"):
        to_rocketmq(bytes(16 << 20), [], GUID, "ID")
    assert len(to_rocketmq(bytes(15 << 20), [], GUID, "ID").body) == 15 << 20


def test_properties_of_rocketmq_are_strings_with_marks_of_their_place() -> None:
    found = stored(UNIQ_KEY="ID", TAGS="red", KEYS="a b", __SHARDINGKEY="k", WAIT="true", amount="5", empty="")
    posted = to_blazingmq(found._replace(flag=-7), "broker-a")
    assert posted.payload == b"body"
    assert values(posted.properties) == {
        "TAGS": ("STRING", "red"),
        "KEYS": ("STRING", "a b"),
        "rocketmq_name___SHARDINGKEY": ("STRING", "k"),
        "amount": ("STRING", "5"),
        "rocketmq_queue": ("STRING", "t/broker-a/3"),
        "rocketmq_offset": ("INT64", 17),
        "rocketmq_id": ("STRING", "ID"),
        "rocketmq_flag": ("INT32", -7),
    }


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT32", "2147483648"),
        ("INT32", "05"),
        ("INT32", "-0"),
        ("INT64", "1e3"),
        ("INT64", "9" * 19),
        ("SHORT", "٣"),
        ("CHAR", "128"),
        ("BOOL", "yes"),
        ("BINARY", "a"),
        ("FLOAT", "1.5"),
    ],
)
def test_text_that_is_not_of_its_type_stays_a_string(kind: str, text: str) -> None:
    posted = to_blazingmq(stored(a=text, bmq_types=f'{{"a":"{kind}"}}'), "b")
    assert values(posted.properties)["a"] == ("STRING", text)


@pytest.mark.parametrize("types", ["", "[]", "{", "[" * 5000, '{"a":5}', "null"])
def test_types_that_are_none_are_passed_over(types: str) -> None:
    assert values(to_blazingmq(stored(a="5", bmq_types=types), "b").properties)["a"] == ("STRING", "5")


@pytest.mark.parametrize("raw", ["!", "AAAA", "ä"])
def test_encoded_properties_that_are_none_stay_a_string(raw: str) -> None:
    assert values(to_blazingmq(stored(bmq_raw=raw), "b").properties)["bmq_raw"] == ("STRING", raw)


def test_marks_tell_of_the_first_origin() -> None:
    properties = [Property("rocketmq_id", PropertyType.STRING, "first"), Property("bmq_guid", PropertyType.STRING, "g")]
    there = to_rocketmq(b"", properties, GUID, "second")
    assert decode_properties(there.properties)["bmq_guid"] == "g"
    back = values(to_blazingmq(record(there), "b").properties)
    assert (back["rocketmq_id"], back["bmq_guid"]) == (("STRING", "first"), ("STRING", "g"))


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(Unfit, match="a name of 5000 bytes is too long"):
        to_blazingmq(stored(**{"n" * 5000: "v"}), "b")


def test_bodies_are_decompressed() -> None:
    packed = record(BatchMessage(0, zlib.compress(b"x" * 1000), b""), system_flags=int(SystemFlag.COMPRESSED))
    assert to_blazingmq(packed, "b").payload == b"x" * 1000
    for name, flags in (("lz4", 1 | 1 << 8), ("zstd", 1 | 2 << 8)):
        message = BatchMessage(0, pa.compress(b"x" * 1000, name, asbytes=True), b"")
        assert to_blazingmq(record(message, system_flags=flags), "b").payload == b"x" * 1000


def test_without_pyarrow_the_command_that_helps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bmqctl.client.remoting.arrow_bodies", None)
    packed = record(BatchMessage(0, b"body", b""), system_flags=1 | 1 << 8)
    with pytest.raises(Unfit, match=r"LZ4: needs pyarrow, which is not installed: pip install '\.\[arrow\]'"):
        to_blazingmq(packed, "b")


@pytest.mark.parametrize(
    ("body", "flags", "reason"),
    [
        (b"no zlib", 1, "a body that is not ZLIB"),
        (zlib.compress(b"x" * 1000)[:-6], 1, "cut off"),
        (b"", 1 | 1 << 8, "a body compressed with LZ4: the stream is empty"),
        (b"no lz4", 1 | 1 << 8, "a body compressed with LZ4: "),
        (b"no zstd", 1 | 2 << 8, "a body compressed with ZSTD: "),
        (pa.compress(b"x" * 1000, "lz4", asbytes=True)[:-6], 1 | 1 << 8, "a body compressed with LZ4: "),
        (pa.compress(b"x" * 1000, "zstd", asbytes=True)[:-6], 1 | 2 << 8, "a body compressed with ZSTD: "),
        (b"", 1 | 5 << 8, "5 is not a valid CompressionType"),
        (b"", int(SystemFlag.INNER_BATCH), "a batch that is stored as one message"),
    ],
)
def test_bodies_that_cannot_be_read_are_refused(body: bytes, flags: int, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        to_blazingmq(record(BatchMessage(0, body, b""), system_flags=flags), "b")


def test_guid_is_the_messages_own() -> None:
    first = stored()
    guids = {
        posted_guid(first, "b"),
        posted_guid(first, "c"),
        posted_guid(first, "b", repeats=1),
        posted_guid(first._replace(queue_offset=18), "b"),
        posted_guid(first._replace(queue_id=4), "b"),
        posted_guid(first._replace(topic="u"), "b"),
        # An emptied store begins with the same offsets again.
        posted_guid(first._replace(stored_ms=3), "b"),
    }
    assert len(guids) == 7
    assert {guid[0] >> 6 for guid in guids} == {1}
    assert posted_guid(first, "b") == posted_guid(first._replace(physical_offset=4711), "b")


NAMES = st.one_of(
    st.sampled_from(["KEYS", "TAGS", "DELAY", "bmq_guid", "bmq_types", "rocketmq_flag", "rocketmq_name_", "a\x01"]),
    st.from_regex(r"(rocketmq_name_)?[_a-zA-Z0-9]{1,6}", fullmatch=True),
    st.text(max_size=6),
)
PROPERTIES = st.one_of(
    st.builds(Property, NAMES, st.just(PropertyType.STRING), st.text(max_size=10)),
    st.builds(Property, NAMES, st.just(PropertyType.BOOL), st.booleans()),
    st.builds(Property, NAMES, st.just(PropertyType.CHAR), st.binary(min_size=1, max_size=1)),
    st.builds(Property, NAMES, st.just(PropertyType.SHORT), st.integers(-(1 << 15), (1 << 15) - 1)),
    st.builds(Property, NAMES, st.just(PropertyType.INT32), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.builds(Property, NAMES, st.just(PropertyType.INT64), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(Property, NAMES, st.just(PropertyType.BINARY), st.binary(max_size=10)),
)


# A flag of 0 is RocketMQ's default, and no property.
NO_FLAG = Property("rocketmq_flag", PropertyType.INT32, 0)


@given(st.lists(PROPERTIES, max_size=8, unique_by=lambda each: each.name), st.binary(max_size=20))
@example([NO_FLAG], b"")
@example([Property("rocketmq_flag", PropertyType.INT64, 0)], b"")
def test_there_and_back_is_what_was(properties: list[Property], payload: bytes) -> None:
    there = to_rocketmq(payload, properties, GUID, "ID")
    for name in decode_properties(there.properties):
        assert name == "UNIQ_KEY" or not is_system_name(name)
    back = to_blazingmq(record(there), "b")
    given_names = {each.name for each in properties}
    wanted = [each for each in properties if each != NO_FLAG]
    assert back.payload == payload
    assert sorted(each for each in back.properties if each.name in given_names) == sorted(wanted)
    assert {each.name for each in back.properties} - given_names <= MARKS
    encode_properties(back.properties, 1)


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
# The bridge's own names, which an application had better leave alone, and RocketMQ's.
FREE_NAMES = TEXT.filter(
    lambda name: name not in ("bmq_raw", "bmq_types", "rocketmq_flag") and not is_system_name(name)
)


@given(
    st.dictionaries(st.one_of(st.sampled_from(["KEYS", "TAGS", "_x", "rocketmq_name_y"]), FREE_NAMES), TEXT, max_size=8)
)
def test_from_rocketmq_and_back_is_what_was(properties: dict[str, str]) -> None:
    posted = to_blazingmq(stored(UNIQ_KEY="ID", **properties)._replace(flag=9), "b")
    again = to_rocketmq(posted.payload, posted.properties, GUID, "NEW")
    found = decode_properties(again.properties)
    assert again.flag == 9
    assert {name: found[name] for name in properties} == properties
    assert found.keys() - properties.keys() <= MARKS | {"UNIQ_KEY", "bmq_types"}


@given(st.binary(max_size=200), st.binary(max_size=40), st.integers(-(1 << 31), (1 << 31) - 1))
def test_any_record_is_carried_or_refused(properties: bytes, body: bytes, flags: int) -> None:
    pieces = [b"bmq_raw\x01", b"bmq_types\x01", b'{"a":"INT64"}\x02a\x01', b"\x02", b"\x01"]
    for piece in (b"", *pieces):
        try:
            posted = to_blazingmq(record(BatchMessage(0, body, piece + properties), system_flags=flags), "b")
        except Unfit:
            continue
        encode_properties(posted.properties, 1)


def test_long_names_and_types_are_not_kept() -> None:
    long = "n" * 4000
    there = to_rocketmq(b"", [Property(long, PropertyType.INT32, 5)], GUID, "ID")
    assert Property(long, PropertyType.INT32, 5) in to_blazingmq(record(there), "b").properties
    for cache in (_to_rocketmq, _to_blazingmq, _types_text, _kinds):
        before = cache.cache_info().currsize
        to_blazingmq(record(to_rocketmq(b"", [Property(f"m{long}", PropertyType.INT32, 5)], GUID, "ID")), "b")
        assert cache.cache_info().currsize <= before
