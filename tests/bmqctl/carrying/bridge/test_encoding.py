"""Messages of RocketMQ as bytes for BlazingMQ, as `to_blazingmq` and the codec of properties make them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bmqctl.carrying.bridge.encoding import _plan, encode_for_blazingmq
from bmqctl.carrying.bridge.mapping import Unfit, to_blazingmq
from formats.bmq.wire.properties import AreaPlan, Property, PropertyType, encode_properties
from formats.rocketmq.files.record import Magic, Record
from tests.families import examples

HOST = b"\x7f\0\0\1\0\0\0\0"


def stored(text: str, flag: int = 0) -> Record:
    return Record(Magic.V1, 0, 3, flag, 17, 4711, 0, 1, HOST, 2, HOST, 0, 0, b"body", "topic", text.encode())


NAMES = st.sampled_from(
    (
        "UNIQ_KEY",
        "TAGS",
        "WAIT",
        "DELAY",
        "_x",
        "a",
        "b",
        "\u00e9",
        "bmq_types",
        "bmq_raw",
        "rocketmq_id",
        "x" * 300,
        "rocketmq_offset",
        "rocketmq_flag",
        "rocketmq_name__x",
        "",
    )
)
VALUES = st.one_of(st.text(max_size=5), st.sampled_from(["", "5", '{"a":"INT64"}']))


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=6), st.sampled_from([0, -7]))
@example({"UNIQ_KEY": "ID", "a": "1"}, 0)
@example({"UNIQ_KEY": "ID", "a": "1"}, -7)
@example({"a": "1", "bmq_types": '{"a":"INT64"}'}, 0)
@example({"rocketmq_id": "OLD", "UNIQ_KEY": "ID"}, 0)
@example({}, 0)
def test_bytes_are_those_of_the_properties(properties: dict[str, str], flag: int) -> None:
    record = stored("".join(f"{name}\x01{value}\x02" for name, value in properties.items()), flag)
    posted = to_blazingmq(record, "broker-a")
    encoded = encode_for_blazingmq(record, "broker-a")
    assert encoded.payload == posted.payload
    assert encoded.area == encode_properties(posted.properties, 1)


def test_messages_with_the_same_names_share_a_plan() -> None:
    before = _plan.cache_info()
    for number in range(10):
        encode_for_blazingmq(stored(f"UNIQ_KEY\x01{number}\x02shared\x01{number}\x02"), "b")
    after = _plan.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 9)


def test_long_names_are_not_kept() -> None:
    before = _plan.cache_info().currsize
    encode_for_blazingmq(stored(f"{'n' * 4000}\x01v\x02"), "b")
    assert _plan.cache_info().currsize == before


def test_more_properties_than_there_can_be_are_refused() -> None:
    with pytest.raises(Unfit, match="properties: their names must differ"):
        encode_for_blazingmq(stored("".join(f"p{number}\x01v\x02" for number in range(300))), "b")
    # Few enough to have a plan made, and too many with the marks.
    with pytest.raises(Unfit, match="properties: their names must differ"):
        encode_for_blazingmq(stored("".join(f"{chr(0x4E00 + n)}\x01v\x02" for n in range(254))), "b")


def test_a_plan_encodes_as_the_codec_does() -> None:
    plan = AreaPlan([("z", PropertyType.STRING), ("a", PropertyType.BOOL), ("m", PropertyType.BINARY)])
    assert plan.names == ["a", "m", "z"]
    wanted = [
        Property("z", PropertyType.STRING, "text"),
        Property("a", PropertyType.BOOL, True),
        Property("m", PropertyType.BINARY, b"\0"),
    ]
    assert plan.encode([b"\1", b"\0", b"text"]) == encode_properties(wanted, 1)
    for properties in ([], [("a", PropertyType.BOOL)] * 2, [("n" * 4096, PropertyType.BOOL)]):
        with pytest.raises(ValueError, match="name"):
            AreaPlan(properties)
    with pytest.raises(ValueError, match="properties of"):
        plan.encode([b"\1", bytes(64 << 20), b""])
