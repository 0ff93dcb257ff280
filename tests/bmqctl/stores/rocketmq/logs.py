"""Small commit logs, written for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_blank, encode_record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties

__all__ = ["FILE_BYTES", "Written", "message", "write_log"]

FILE_BYTES = 1 << 16
V6 = "2001:db8::1"


def message(number: int, offset: int = 0, **changes: Any) -> Record:
    """A message that differs from those of other numbers."""
    body = changes.pop("body", f"body {number}".encode())
    born = Host(changes.pop("born", "127.0.0.1"), 5)
    stored = Host(changes.pop("stored", "10.0.0.1"), 10911)
    flags = (SystemFlag.BORN_HOST_V6 if born.is_v6 else 0) | (SystemFlag.STORE_HOST_V6 if stored.is_v6 else 0)
    properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "TAGS": "paid" if number % 2 else "open"}
    record = Record(
        version=Magic.V1,
        body_crc=body_crc(body),
        queue_id=number % 4,
        flag=number,
        queue_offset=number // 4,
        physical_offset=offset,
        system_flags=int(flags) | changes.pop("flags", 0),
        born_ms=1_795_400_000_000 + 1000 * number,
        born_host=born.pack(),
        stored_ms=1_795_400_000_001 + 1000 * number,
        store_host=stored.pack(),
        reconsume_times=number % 3,
        prepared_transaction_offset=number * 7,
        body=body,
        topic="orders",
        properties=encode_properties({**properties, **changes.pop("properties", {})}),
    )
    return record._replace(**changes)


class Written:
    """A store that was written: its folder, and the records in their order."""

    def __init__(self, root: Path, file_bytes: int = FILE_BYTES) -> None:
        self.root = root
        self._file_bytes = file_bytes
        self.records: list[Record] = []

    @property
    def offsets(self) -> list[int]:
        return [record.physical_offset for record in self.records]

    def path(self, offset: int) -> Path:
        """The file with this offset."""
        return self.root / "commitlog" / offset_name(offset // self._file_bytes * self._file_bytes)

    def overwrite(self, offset: int, data: bytes) -> None:
        """Put bytes at an offset of the log."""
        with self.path(offset).open("r+b") as file:
            file.seek(offset % self._file_bytes)
            file.write(data)


def write_log(root: Path, messages: Iterable[Record], begin: int = 0, file_bytes: int = FILE_BYTES) -> Written:
    """Write messages as a broker would, into files of one size, each with a blank tail but the last."""
    written = Written(root, file_bytes)
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    data, at = bytearray(), begin
    for each in messages:
        record = each._replace(physical_offset=at)
        encoded = encode_record(record)
        left = file_bytes - at % file_bytes
        if len(encoded) + 8 > left:
            data += encode_blank(left) + bytes(left - 8)
            at += left
            record = each._replace(physical_offset=at)
            encoded = encode_record(record)
        data += encoded
        at += len(encoded)
        written.records.append(record)
    data += bytes(-len(data) % file_bytes)
    for place in range(0, len(data), file_bytes):
        written.path(begin + place).write_bytes(data[place : place + file_bytes])
    return written
