"""Properties taken apart all at once, as the codec takes each apart."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bmqctl.pipeline.rocketmq.property_items import PropertyItems, key_lists
from bmqctl.pipeline.rocketmq.tables import STRING_MAP
from bmqctl.stores.rocketmq.read.records import search
from formats.rocketmq.files.record import encode_record
from formats.rocketmq.properties import decode_properties
from tests.bmqctl.stores.rocketmq.logs import message

ENCODED = [
    b"",
    b"KEYS\x01k1 k2\x02TAGS\x01a\x02",
    b"KEYS\x01k1\x02TAGS\x01a",
    "NAME\x01Grüße\x02".encode(),
    b"EMPTY\x01\x02",
]
ODD = [b"\x02\x02", b"no separator", b"A\x01b\x01c\x02", b"A\x011\x02A\x012\x02", b"A\x01\xff\x02", b"\x01x\x02"]


def compare(properties: list[bytes]) -> None:
    data, at = b"", 0
    for number, each in enumerate(properties):
        data += encode_record(message(number, at)._replace(properties=each))
        at = len(data)
    found = search(memoryview(data), 0, len(data)).records
    items = PropertyItems(found)
    decoded = [decode_properties(each) for each in properties]
    assert items.map(STRING_MAP).to_pylist() == [list(each.items()) for each in decoded]
    for name in ("KEYS", "TAGS", "A"):
        assert items.column(name).to_pylist() == [each.get(name) for each in decoded]


@given(st.lists(st.sampled_from(ENCODED), min_size=1, max_size=8))
def test_ordinary_properties(properties: list[bytes]) -> None:
    compare(properties)


@given(st.lists(st.sampled_from(ENCODED + ODD), min_size=1, max_size=8))
def test_odd_properties(properties: list[bytes]) -> None:
    compare(properties)


@given(st.lists(st.lists(st.sampled_from([b"A", b"\x01", b"\x02", b"\xc3", b"\xa4"]), max_size=9), max_size=5))
def test_any_properties(pieces: list[list[bytes]]) -> None:
    compare([b"".join(each) for each in pieces] or [b""])


def test_keys_are_between_spaces(tmp_path: Path) -> None:
    import pyarrow as pa

    keys = pa.array(["a", "a b", " a  b ", None, "a\tb"])
    assert key_lists(keys).to_pylist() == [["a"], ["a", "b"], ["a", "b"], None, ["a\tb"]]
