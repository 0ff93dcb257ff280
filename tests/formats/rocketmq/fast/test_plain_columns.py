"""Plain records in columns: the records read one by one, and their results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.rocketmq.fast.plain_columns import MANY, PlainColumns, read_columns
from formats.rocketmq.fast.plain_records import PlainRecord, plain_records
from formats.rocketmq.fast.property_columns import PropertyColumns, Values
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, ConsumeQueueEntry
from formats.rocketmq.files.index import message_index_keys
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.java import index_hash, string_hash
from formats.rocketmq.properties import decode_properties
from tests.families import examples
from tests.formats.rocketmq.fast.plain_records_rig import FILE_BYTES, HOST, SIZE_MAX, logs

PIECES = (
    *(b"UNIQ_KEY", b"KEYS", b"TAGS", b"DELAY", b"__LITE_TOPIC", b"UNIQ_KE", b"XKEYS", b"__LITE_T"),
    *(b"\1", b"\1", b"\1", b"\2", b"\2", b"\2", b" ", b" ", b"a", b"polygenelubricants"),
    *(b"\xff", "\u00fc".encode(), "\u20ac".encode(), b"\0"),
)
NAMES = (b"KEYS", b"KEYS", b"TAGS", b"UNIQ_KEY", b"WAIT", b"XKEYS", b"UNIQ_KE", b"DELAYED", b"__LITE_TOPIC2")
VALUES = (b"", b"a", b"b c", b" d  e ", b"\xff", "\u20ac x".encode(), b"\1f", b"KEYS")
PROPERTIES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(b"\1".join), max_size=6).map(
    b"\2".join
) | st.lists(st.sampled_from(PIECES), max_size=16).map(b"".join)
TOPICS = (b"topic", b"topic", b"topic", b"other", b"t", b"\xff", "\u00fc".encode())


def read(data: bytes, offset: int, file_size: int = FILE_BYTES) -> PlainColumns | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("formats.rocketmq.fast.plain_columns.MANY", 1)
        return read_columns(memoryview(data), offset, file_size, SIZE_MAX)


def kept(data: bytes, offset: int) -> list[PlainRecord]:
    """The records that columns are to have."""
    found: list[PlainRecord] = []
    following: dict[tuple[bytes, int], int] = {}
    for record in plain_records(memoryview(data), offset, FILE_BYTES, SIZE_MAX):
        _, _, field, queue_id, queue_offset, _, properties = record
        names = decode_properties(properties[1:])
        if queue_offset != following.get((field, queue_id), queue_offset) or names.keys() & {"DELAY", "__LITE_TOPIC"}:
            break
        if field[1:].decode(errors="replace").encode() != field[1:]:
            break
        following[field, queue_id] = queue_offset + 1
        found.append(record)
    return found


def check(columns: PlainColumns, records: list[PlainRecord], offset: int) -> None:
    keys: list[tuple[int, int, int]] = []
    queues: dict[tuple[bytes, int], list[PlainRecord]] = {}
    codes: dict[int, int] = {}
    for record in records:
        at, _, field, queue_id, _, stored_ms, data = record
        properties = decode_properties(data[1:])
        keys += [(index_hash(key), at, stored_ms) for key in message_index_keys(field[1:].decode(), properties)]
        codes[at] = string_hash(properties["TAGS"]) if properties.get("TAGS") else 0
        queues.setdefault((field, queue_id), []).append(record)
    assert list(zip(*(column.tolist() for column in columns.keys), strict=True)) == keys
    assert [(each.topic, each.queue_id) for each in columns.queues] == list(queues)
    for each, wanted in zip(columns.queues, queues.values(), strict=True):
        assert (each.first, each.length) == (wanted[0][4], len(wanted))
        assert each.size == sum(size for _, size, *_ in wanted)
        assert list(each.rows()) == [(at, size, codes[at], stored_ms) for at, size, _, _, _, stored_ms, _ in wanted]
        assert each.entries == b"".join(
            CONSUME_QUEUE_ENTRY.pack(ConsumeQueueEntry(at, size, codes[at])) for at, size, *_ in wanted
        )
    assert columns.size == sum(size for _, size, *_ in records)
    if records:
        assert columns.stored_ms == records[-1][5]


@given(logs(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_any_records_are_those_that_are_read_one_by_one(log: tuple[int, bytes], more: st.DataObject) -> None:
    """Sound records, and some with bytes that are changed or missing."""
    offset, data = log
    if more.draw(st.booleans()):
        at = more.draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes([data[at] ^ more.draw(st.integers(1, 255))]) + data[at + 1 :]
    data = data[: more.draw(st.sampled_from((len(data), len(data), len(data) // 2)))]
    columns, records = read(data, offset), kept(data, offset)
    if columns is None:
        assert not records
    else:
        check(columns, records, offset)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TOPICS), st.integers(-1, 2), PROPERTIES, st.sampled_from((0, 0, 0, 0, 0, 1)), st.binary()
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=examples(400), deadline=None)
def test_columns_have_what_the_records_say(drawn: list[tuple[bytes, int, bytes, int, bytes]]) -> None:
    data = b""
    ends: dict[tuple[bytes, int], int] = {}
    for number, (topic, queue_id, properties, gap, body) in enumerate(drawn):
        at = ends.get((topic, queue_id), 1 << 30) + gap
        ends[topic, queue_id] = at + 1
        record = Record(
            *(Magic.V1, body_crc(body), queue_id, 0, at, len(data), 0, 7, HOST, 1 << 40 | number, HOST, 0, 0),
            *(body, "x" * len(topic), properties),
        )
        begin = len(data) + 88 + len(body) + 1
        data += encode_record(record)
        data = data[:begin] + topic + data[begin + len(topic) :]
    columns, records = read(data, 0), kept(data, 0)
    assert columns is not None
    check(columns, records, 0)
    assert columns.is_whole == (len(records) == len(drawn))


def log_of(count: int, **changes: Any) -> bytes:
    """Records of one queue, the third one with changes."""
    data = b""
    for number in range(count):
        record = Record(
            *(Magic.V1, 0, 0, 0, number, len(data), 0, 7, HOST, 1, HOST, 0, 0), *(b"", "topic", b"KEYS\1a\2TAGS\1b\2")
        )
        data += encode_record(record._replace(**changes) if number == 2 else record)
    return data


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Change bytes of the third record."""
    at += 2 * (len(data) // 4)
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    "data",
    [
        log_of(4, body_crc=1),
        log_of(4, body_crc=1 << 31),
        log_of(4, physical_offset=0),
        log_of(4, version=Magic.V2),
        log_of(4, version=Magic.BLANK),
        log_of(4, system_flags=4),
        log_of(4, queue_offset=7),
        log_of(4, properties=b"DELAY\x012"),
        log_of(4, properties=b"a\1b\2__LITE_TOPIC\1\2"),
        log_of(4, body=bytes(SIZE_MAX), body_crc=body_crc(bytes(SIZE_MAX))),
        # The sizes of the body, of the topic and of the properties.
        patched(log_of(4), 84, (1).to_bytes(4, "big")),
        patched(log_of(4), 84, (-1).to_bytes(4, "big", signed=True)),
        patched(log_of(4), 84, (1 << 30).to_bytes(4, "big")),
        patched(log_of(4), 88, b"\x04"),
        patched(log_of(4), 88, b"\xff"),
        patched(log_of(4), 94, b"\x01"),
        patched(log_of(4), 95, b"\x00"),
        patched(log_of(4), 0, bytes(4)),
        patched(log_of(4), 89, b"\xff"),
    ],
)
def test_record_with_a_fault_ends_the_columns(data: bytes) -> None:
    columns, records = read(data, 0), kept(data, 0)
    assert columns is not None
    assert len(records) == sum(each.length for each in columns.queues) == 2
    check(columns, records, 0)


@pytest.mark.parametrize("left", [8, 7])
def test_record_leaves_room_for_a_blank_one(left: int) -> None:
    data = log_of(2)
    columns = read(data, 0, len(data) + left)
    assert columns is not None
    assert columns.queues[0].length == (2 if left == 8 else 1)


def test_body_of_a_size_below_none_is_refused() -> None:
    """A record whose other parts fill it all the same."""
    topic = bytes([0xFF]) + b"x" * 0xFF
    good = log_of(1)
    front = bytearray(encode_record(Record(Magic.V1, 0, 0, 0, 1, len(good), 0, 7, HOST, 1, HOST, 0, 0, b"", "", b"")))
    bad = front[:84] + (-1).to_bytes(4, "big", signed=True) + topic[1:] + (0).to_bytes(2, "big")
    bad[:4] = len(bad).to_bytes(4, "big")
    columns = read(good + bytes(bad) + bytes(8), 0)
    assert columns is not None
    assert columns.queues[0].length == len(columns.queues) == 1


def test_few_records_are_left() -> None:
    def log(count: int) -> memoryview:
        record = encode_record(Record(Magic.V1, 0, 0, 0, 0, 0, 0, 7, HOST, 1, HOST, 0, 0, b"", "topic", b""))
        return memoryview(record * count)

    assert read_columns(log(MANY - 1), 0, 1 << 20, SIZE_MAX) is None
    assert read_columns(log(MANY), 0, 1 << 20, SIZE_MAX) is not None


@given(st.lists(PROPERTIES | st.binary(max_size=20), min_size=1, max_size=6))
@settings(max_examples=examples(400))
def test_values_are_those_that_are_decoded(texts: list[bytes]) -> None:
    columns = PropertyColumns(texts)
    decoded = [decode_properties(text) for text in texts]

    def shown(values: Values) -> list[tuple[int, str]]:
        spans = zip(values.records.tolist(), values.begins.tolist(), values.ends.tolist(), strict=True)
        return [(number, columns._text[begin:end].decode(errors="replace")) for number, begin, end in spans]

    for name in ("UNIQ_KEY", "KEYS", "TAGS", "DELAY", "__LITE_TOPIC"):
        wanted = [(number, found[name]) for number, found in enumerate(decoded) if found.get(name)]
        assert shown(columns.values(name.encode())) == wanted
        having = [number for number, found in enumerate(decoded) if name in found]
        assert columns.first_with(name.encode()) == (having[0] if having else None)
    words = [(at, word) for at, found in enumerate(decoded) for word in found.get("KEYS", "").split(" ") if word]
    assert shown(columns.split(columns.values(b"KEYS"))) == words
