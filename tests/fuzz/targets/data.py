"""Any bytes as a DATA file are refused, or have records up to the end, one after the other, aligned, of whole views.

The content of a record can be written and read again.
"""

from __future__ import annotations

from formats.bmq.disk.data import DataRecord, data_record_size, parse_data_record, write_data_record
from formats.bmq.disk.files import FileType, open_file
from formats.bmq.stores.recover import iter_data
from tests.fuzz.seeds import small_store

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[DataRecord]:
    return list(iter_data(data))


def verify(data: bytes, records: list[DataRecord]) -> None:
    at = open_file(data, FileType.DATA).first_record_offset
    for record in records:
        assert (record.offset, record.offset % 8) == (at, 0)
        content, options = record.app_data(data), record.options(data)
        assert record.offset < record.options_offset <= record.app_data_offset < record.end <= len(data)
        out = bytearray(data_record_size(len(options), len(content)))
        end = write_data_record(out, 0, content, options, record.header.flags, record.header.schema_id)
        again = parse_data_record(out, 0)
        assert (again.end, again.app_data(out), again.options(out)) == (end, content, options)
        assert again.crc32c(out) == record.crc32c(data)
        at = record.end


def seeds() -> list[bytes]:
    data = small_store()[FileType.DATA]
    return [data, data + bytes(64), small_store(8, 5)[FileType.DATA], data[:60]]
