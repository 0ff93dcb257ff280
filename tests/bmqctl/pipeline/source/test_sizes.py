from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bmqctl.pipeline.source import sizes
from bmqctl.pipeline.source.sizes import MessageSizes, measure
from bmqctl.stores.blazingmq.read.files import map_data
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.disk.data import DataHeaderFlags, data_record_size, write_data_record
from formats.bmq.disk.journal import MessageRecord
from formats.bmq.stores.recover import iter_journal
from tests.golden.archives import only, truth


def properties(words: int) -> bytes:
    """An area of message properties that says it is `words` long."""
    return bytes([0x1B]) + words.to_bytes(3, "big") + bytes(words * 4 - 4)


def stored(app_data: bytes, flags: int = 0, schema_id: int = 0) -> bytearray:
    data = bytearray(data_record_size(0, len(app_data)))
    write_data_record(data, 0, app_data, b"", flags, schema_id)
    return data


WITH_PROPERTIES = DataHeaderFlags.MESSAGE_PROPERTIES
BODY = b"body" * 1000
PACKED = zlib.compress(BODY)


@pytest.mark.parametrize(
    ("data", "compression", "expected"),
    [
        (stored(BODY), CompressionAlgorithm.NONE, MessageSizes(4000, 0, 4000)),
        (stored(properties(5) + BODY, WITH_PROPERTIES, 3), CompressionAlgorithm.NONE, MessageSizes(4020, 20, 4000)),
        (stored(properties(5) + BODY, WITH_PROPERTIES), CompressionAlgorithm.NONE, MessageSizes(4020, 20, 4000)),
        (stored(PACKED), CompressionAlgorithm.ZLIB, MessageSizes(len(PACKED), 0, 4000)),
        (
            stored(properties(5) + PACKED, WITH_PROPERTIES, 3),
            CompressionAlgorithm.ZLIB,
            MessageSizes(20 + len(PACKED), 20, 4000),
        ),
        (
            stored(zlib.compress(properties(5) + BODY), WITH_PROPERTIES),
            CompressionAlgorithm.ZLIB,
            MessageSizes(len(zlib.compress(properties(5) + BODY)), 20, 4000),
        ),
    ],
    ids=["plain", "properties", "properties before schemas", "zlib", "zlib after properties", "zlib of all"],
)
def test_sizes_as_stored_and_as_posted(data: bytearray, compression: int, expected: MessageSizes) -> None:
    assert measure(data, 0, compression) == expected


@pytest.mark.parametrize(
    ("data", "compression", "expected"),
    [
        (stored(BODY)[:-8], CompressionAlgorithm.NONE, MessageSizes(None, None, None)),
        (bytearray(), CompressionAlgorithm.NONE, MessageSizes(None, None, None)),
        (stored(BODY), 5, MessageSizes(4000, None, None)),
        (stored(BODY), CompressionAlgorithm.ZLIB, MessageSizes(4000, 0, None)),
        (stored(PACKED[:-9]), CompressionAlgorithm.ZLIB, MessageSizes(len(PACKED) - 9, 0, None)),
        (stored(properties(5)[:12], WITH_PROPERTIES, 3), CompressionAlgorithm.NONE, MessageSizes(12, None, None)),
        (stored(BODY, WITH_PROPERTIES), CompressionAlgorithm.ZLIB, MessageSizes(4000, None, None)),
    ],
    ids=["cut short", "nothing", "unknown", "not zlib", "half zlib", "properties too long", "not zlib of all"],
)
def test_size_that_cannot_be_known_is_none(data: bytearray, compression: int, expected: MessageSizes) -> None:
    assert measure(data, 0, compression) == expected


def test_inflating_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "INFLATED_SIZE_MAX", 1 << 20)
    bomb = stored(zlib.compress(bytes(16 << 20)))
    assert measure(bomb, 0, CompressionAlgorithm.ZLIB).payload is None


@pytest.mark.parametrize(("name", "posted"), [("single-crash", "single"), ("cluster-node2", "cluster")])
def test_payload_sizes_are_those_that_the_client_posted(golden: Callable[[str], Path], name: str, posted: str) -> None:
    data = map_data(only(golden(name), ".bmq_data"))
    measured = {
        record.guid.hex(): measure(data, record.message_offset_dwords * 8, record.compression)
        for _, record in iter_journal(map_data(only(golden(name), ".bmq_journal")))
        if isinstance(record, MessageRecord)
    }
    checked = 0
    for message in truth(posted):
        if "mem.broadcast" in message["queue"]:
            continue
        found = measured[message["guid"]]
        assert found.payload == message["size"]
        assert bool(found.properties) == bool(message["properties"])
        checked += 1
    assert checked == 290
