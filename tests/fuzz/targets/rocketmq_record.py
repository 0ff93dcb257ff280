"""Any bytes as a commit log record are refused, or are the record's; so it is with batches and properties."""

from __future__ import annotations

from typing import NamedTuple

from formats.errors import FormatError
from formats.rocketmq.files.record import Blank, Magic, Record, body_crc, decode_record, encode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import BatchMessage, encode_batch, iter_batch

__all__ = ["decode", "seeds", "verify"]


class Read(NamedTuple):
    record: Record | Blank | None
    properties: dict[str, str] | None
    batch: list[BatchMessage] | None


def decode(data: bytes) -> Read:
    record = decode_record(data)
    if not isinstance(record, Record):
        return Read(record, None, None)
    try:
        batch = list(iter_batch(record.body))
    except FormatError:
        batch = None
    return Read(record, decode_properties(record.properties), batch)


def verify(data: bytes, read: Read) -> None:
    if isinstance(read.record, Record):
        written = encode_record(read.record)
        assert data.startswith(written)
    if read.batch is not None and isinstance(read.record, Record):
        written = encode_batch(read.batch)
        assert len(written) == len(read.record.body)


def seeds() -> list[bytes]:
    batch = encode_batch([BatchMessage(0, b"one", b"a\x01b\x02"), BatchMessage(1, b"", b"")])
    plain = Record(
        Magic.V1,
        body_crc(b"x"),
        0,
        0,
        1,
        2,
        0,
        3,
        Host("127.0.0.1", 4).pack(),
        5,
        Host("10.0.0.1", 6).pack(),
        0,
        0,
        b"x",
        "t",
        b"a\x01b\x02",
    )
    v6 = plain._replace(
        version=Magic.V2,
        system_flags=48,
        born_host=Host("::1", 1).pack(),
        store_host=Host("2001:db8::1", 2).pack(),
        body=batch,
    )
    return [encode_record(plain), encode_record(v6), encode_record(plain._replace(body=batch))]
