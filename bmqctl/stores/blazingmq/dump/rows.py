"""The records of DATA and QLIST files as rows of names and values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bmqctl.common import render
from bmqctl.stores.blazingmq.read.columns import Column, Kind, Row
from bmqctl.stores.blazingmq.read.data_file import DataFile
from bmqctl.stores.blazingmq.read.files import read_written
from formats.bmq.disk.keys import hex_of
from formats.bmq.stores.recover import iter_qlist

__all__ = ["DATA_COLUMNS", "DATA_TABLE", "QLIST_COLUMNS", "QLIST_TABLE", "data_rows", "qlist_rows"]

DATA_COLUMNS = tuple(
    Column(name, Kind.NUMBER)
    for name in ("index", "offset", "size", "options_size", "app_data_size", "flags", "schema_id", "crc32c")
)
DATA_TABLE = [
    render.Column("index", "index", 8, right=True),
    render.Column("offset", "offset", 12, right=True),
    render.Column("size", "size", 10, right=True),
    render.Column("app_data_size", "app data", 10, right=True),
    render.Column("options_size", "options", 8, right=True),
    render.Column("flags", "flags", 5, right=True),
    render.Column("schema_id", "schema", 6, right=True),
    render.Column("crc32c", "crc32c", 10, right=True),
]
QLIST_COLUMNS = (
    Column("index", Kind.NUMBER),
    Column("offset", Kind.NUMBER),
    Column("queue_key"),
    Column("queue_uri"),
    Column("apps", Kind.JSON),
)
QLIST_TABLE = [
    render.Column("index", "index", 8, right=True),
    render.Column("offset", "offset", 12, right=True),
    render.Column("queue_key", "key", 10),
    render.Column("queue_uri", "queue", 48),
    render.Column("apps", "apps"),
]


def data_rows(path: Path) -> Iterator[Row]:
    """The records of a DATA file, without their payloads. Raises FormatError at a damaged one."""
    with DataFile(path) as file:
        for index, (offset, buffer, record) in enumerate(file.records()):
            yield {
                "index": index,
                "offset": offset,
                "size": record.end,
                "options_size": record.app_data_offset - record.options_offset,
                "app_data_size": record.app_data_size,
                "flags": record.header.flags,
                "schema_id": record.header.schema_id,
                "crc32c": record.crc32c(buffer),
            }


def qlist_rows(path: Path) -> Iterator[Row]:
    """The records of a QLIST file. Raises FormatError at a damaged one."""
    for index, record in enumerate(iter_qlist(read_written(path))):
        yield {
            "index": index,
            "offset": record.offset,
            "queue_key": hex_of(record.queue_key),
            "queue_uri": record.uri,
            "apps": [{"app_id": app.app_id, "app_key": hex_of(app.app_key)} for app in record.apps],
        }
