"""Commit log records: every one of the golden stores, both versions, all kinds of hosts, and damage."""

from __future__ import annotations

import base64
import hashlib
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.files.names import offset_name, offset_of_name
from formats.rocketmq.files.record import (
    Blank,
    Magic,
    Record,
    _decode_any,
    _decode_usual,
    body_crc,
    decode_record,
    encode_blank,
    encode_record,
    record_bytes,
)
from formats.rocketmq.flags import CompressionType, SystemFlag, Transaction, compression_of, transaction_of
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import decode_properties, encode_properties
from tests.golden.rocketmq.stores import STORES, read_back, records

ADDED_BY_CLIENT = ("MIN_OFFSET", "MAX_OFFSET", "CLUSTER")
"""Properties that a broker or client adds when it hands a message out."""


def make_record(**changes: Any) -> Record:
    """A small sound record."""
    record = Record(
        version=Magic.V1,
        body_crc=body_crc(b"body"),
        queue_id=1,
        flag=0,
        queue_offset=2,
        physical_offset=3,
        system_flags=0,
        born_ms=4,
        born_host=Host("127.0.0.1", 5).pack(),
        stored_ms=6,
        store_host=Host("10.0.0.1", 7).pack(),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"body",
        topic="topic",
        properties=b"a\x01b\x02",
    )
    return record._replace(**changes)


@pytest.mark.parametrize("name", STORES)
def test_every_golden_record_is_read_and_written_back(name: str, golden_brokers: dict[str, list[Path]]) -> None:
    for broker in golden_brokers[name]:
        files = {path.name: path.read_bytes() for path in (broker / "commitlog").iterdir()}
        size = len(next(iter(files.values())))
        read = 0
        for offset, record in records(broker):
            data, at = files[offset_name(offset // size * size)], offset % size
            if isinstance(record, Blank):
                assert at + record.size == size
                assert data[at : at + 8] == encode_blank(record.size)
                continue
            written = encode_record(record)
            assert data[at : at + len(written)] == written
            assert record.physical_offset == offset
            assert record.is_body_sound
            read += 1
        assert read > 0


def test_golden_records_are_what_the_java_client_reads(golden_broker: Path) -> None:
    expected = dict(read_back())
    for offset, record in records(golden_broker):
        found = expected.pop(offset, None)
        if found is None:
            continue
        assert isinstance(record, Record)
        assert record.topic == found["topic"]
        assert record.queue_id == found["queueId"]
        assert record.queue_offset == found["queueOffset"]
        assert record.flag == found["flag"]
        assert record.born_ms == found["bornTimestamp"]
        assert record.stored_ms == found["storeTimestamp"]
        assert f"/{Host.unpack(record.born_host)}" == found["bornHost"]
        assert f"/{Host.unpack(record.store_host)}" == found["storeHost"]
        assert record.reconsume_times == found["reconsumeTimes"]
        assert record.prepared_transaction_offset == found["preparedTransactionOffset"]
        assert str(OffsetId(Host.unpack(record.store_host), offset)) == found["offsetMsgId"]
        body = bytes(record.body)
        if record.system_flags & SystemFlag.COMPRESSED:
            assert compression_of(record.system_flags) is CompressionType.ZLIB
            body = zlib.decompress(body)
        if "bodyB64" in found:
            assert body == base64.b64decode(found["bodyB64"])
        else:
            assert hashlib.sha256(body).hexdigest() == found["bodySha256"]
        theirs = {name: value for name, value in found["properties"].items() if name not in ADDED_BY_CLIENT}
        ours = {name: value for name, value in decode_properties(record.properties).items() if value}
        ours.pop("CLUSTER", None)
        assert ours == theirs
    assert not expected


def test_golden_properties_are_written_back(golden_broker: Path) -> None:
    for _, record in records(golden_broker):
        if isinstance(record, Record):
            written = encode_properties(decode_properties(record.properties))
            # Some clients leave out the last separator.
            assert record.properties in (written, written[:-1])


@pytest.mark.parametrize("version", [Magic.V1, Magic.V2])
@pytest.mark.parametrize("born", ["127.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("stored", ["127.0.0.1", "2001:db8::2"])
def test_record_of_every_version_and_kind_of_host(version: Magic, born: str, stored: str) -> None:
    born_host, store_host = Host(born, 1), Host(stored, 2)
    flags = (SystemFlag.BORN_HOST_V6 if born_host.is_v6 else 0) | (SystemFlag.STORE_HOST_V6 if store_host.is_v6 else 0)
    record = make_record(version=version, system_flags=flags, born_host=born_host.pack(), store_host=store_host.pack())
    data = encode_record(record)
    assert len(data) == record_bytes(version, flags, 4, 5, 4)
    assert decode_record(b"\0" * 3 + data, 3) == record


def test_topic_of_version_2_may_be_longer() -> None:
    long = make_record(topic="t" * 200)
    with pytest.raises(ValueError, match="the topic has 200 bytes, more than the 127 that a V1 record takes"):
        encode_record(long)
    assert decode_record(encode_record(long._replace(version=Magic.V2))) == long._replace(version=Magic.V2)


def test_record_that_its_fields_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="the properties have 32768 bytes"):
        encode_record(make_record(properties=b"x" * 32768))
    with pytest.raises(ValueError, match="a host has 20 bytes; the system flags 0x0 say otherwise"):
        encode_record(make_record(born_host=Host("::1", 1).pack()))


def test_nothing_written_is_no_record() -> None:
    assert decode_record(bytes(100)) is None
    assert decode_record(b"\0" * 7) is None


def test_blank_reaches_to_the_end_of_its_file() -> None:
    assert decode_record(encode_blank(20) + bytes(12)) == Blank(20)
    with pytest.raises(FormatError, match="20 bytes reach beyond the 19 that are left"):
        decode_record(encode_blank(20) + bytes(11))


@given(st.data())
def test_the_short_way_reads_what_the_long_one_reads(data: st.DataObject) -> None:
    """The short way leaves whatever is not sound or not usual to the long one, which tells what is wrong."""
    record = make_record(version=data.draw(st.sampled_from([Magic.V1, Magic.V2])))
    raw = bytearray(encode_record(record))
    assert _decode_usual(raw, 0, len(raw)) == _decode_any(raw, 0, len(raw)) == record
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(raw), len(raw) - 1, 88]))
    found = _decode_usual(raw, 0, end)
    if found is not None:
        assert found == _decode_any(raw, 0, end)


@given(st.data())
def test_one_changed_byte_is_noticed_or_changes_one_field(data: st.DataObject) -> None:
    whole = bytearray(encode_record(make_record()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        record = decode_record(whole)
    except FormatError:
        return
    if isinstance(record, Record):
        sound = make_record()
        assert sum(ours != theirs for ours, theirs in zip(record, sound, strict=True)) == 1
        assert encode_record(record) == whole


@pytest.mark.parametrize(
    ("name", "offset"),
    [("00000000000000000000", 0), ("00000000001073741824", 1 << 30), ("abort", None), ("0000000000000000000", None)],
)
def test_names_of_files(name: str, offset: int | None) -> None:
    assert offset_of_name(name) == offset
    if offset is not None:
        assert offset_name(offset) == name


def test_system_flags_name_transaction_and_compression() -> None:
    assert [transaction_of(flags) for flags in (0, 4, 8, 13)] == [
        Transaction.NONE,
        Transaction.PREPARED,
        Transaction.COMMIT,
        Transaction.ROLLBACK,
    ]
    named = [compression_of(flags) for flags in (0, 1, 0x101, 0x201, 0x301)]
    assert named == [None, CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.ZLIB]
    with pytest.raises(ValueError, match="5 is not a valid CompressionType"):
        compression_of(0x501)
