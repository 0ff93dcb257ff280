"""The columns of a dump, and commit log records as rows of names and values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

from bmqctl.common import render
from bmqctl.stores.blazingmq.read.columns import Column, Kind, Row
from bmqctl.stores.rocketmq.read.payload import PAYLOAD_COLUMNS, BodyReader
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogFault
from formats.errors import FormatError
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import decode_properties

__all__ = ["COLUMNS", "TABLE", "columns_with", "host_text", "rows_of", "shown_row", "time_text"]

COLUMNS: Final = (
    *(Column(name, Kind.NUMBER) for name in ("offset", "size")),
    Column("topic"),
    *(Column(name, Kind.NUMBER) for name in ("queue_id", "queue_offset", "stored_ms")),
    Column("stored"),
    Column("born_ms", Kind.NUMBER),
    *(Column(name) for name in ("born_host", "store_host", "offset_id")),
    *(
        Column(name, Kind.NUMBER)
        for name in (
            "flag",
            "system_flags",
            "reconsume_times",
            "prepared_transaction_offset",
            "body_size",
            "body_crc",
        )
    ),
    Column("properties", Kind.JSON),
)
_FAULT: Final = Column("fault")
TABLE: Final = [
    render.Column("offset", "offset", 14, right=True),
    render.Column("size", "size", 8, right=True),
    render.Column("stored", "stored", 24),
    render.Column("topic", "topic", 28),
    render.Column("queue_id", "queue", 5, right=True),
    render.Column("queue_offset", "number", 10, right=True),
    render.Column("id", "id", 32),
    render.Column("details", "tag, keys, other properties"),
]


def columns_with(bodies: BodyReader | None) -> tuple[Column, ...]:
    return (*COLUMNS, *(() if bodies is None else PAYLOAD_COLUMNS), _FAULT)


def time_text(ms: int) -> str | None:
    """A time in milliseconds as ISO 8601, UTC; None if no calendar has it."""
    seconds, rest = divmod(ms, 1000)
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:03d}Z"
    except (ValueError, OverflowError, OSError):
        return None


def host_text(packed: bytes) -> str:
    """A host as text, or its bytes in hexadecimal if it is not a host."""
    try:
        return str(Host.unpack(packed))
    except FormatError:
        return packed.hex().upper()


def rows_of(records: LogRecords, faults: Iterable[LogFault] = (), bodies: BodyReader | None = None) -> list[Row]:
    numbers = ("queue_id", "queue_offset", "flag", "born_ms", "body_crc")
    columns = {
        "offset": records.offsets.tolist(),
        "size": records.sizes.tolist(),
        "topic": [topic.decode(errors="replace") for topic in records.topics()],
        "stored_ms": records.stored_ms.tolist(),
        "born_host": records.born_hosts,
        "store_host": records.store_hosts,
        "system_flags": records.flags.tolist(),
        "reconsume_times": records.reconsume_times.tolist(),
        "prepared_transaction_offset": records.prepared_transaction_offsets.tolist(),
        "body_size": records.body_sizes.tolist(),
        "properties": [decode_properties(properties) for properties in records.properties()],
        **{name: records.front(name).tolist() for name in numbers},
    }
    rows = []
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, values, strict=True))
        row["offset_id"] = f"{row['store_host'].hex().upper()}{row['offset']:016X}"
        row["stored"] = time_text(row["stored_ms"])
        row |= {name: host_text(row[name]) for name in ("born_host", "store_host")}
        row = {column.name: row[column.name] for column in COLUMNS if row[column.name] is not None}
        rows.append(row | ({} if bodies is None else bodies.values(records, number)))
    rows += ({"offset": fault.offset, "size": fault.size, "fault": fault.text} for fault in faults)
    return sorted(rows, key=itemgetter("offset"))


def shown_row(row: Row) -> Row:
    if "fault" in row:
        return {**row, "topic": "?", "details": row["fault"]}
    properties = dict(row["properties"])
    unique_id = properties.pop("UNIQ_KEY", None)
    first = {name: properties.pop(name) for name in ("TAGS", "KEYS") if name in properties}
    rest = {**first, **properties, **{name: row[name] for name in _MORE if row.get(name)}}
    details = " ".join(f"{name}={value}" for name, value in rest.items())
    return {**row, "id": unique_id or row["offset_id"], "details": details}


_MORE: Final = ("reconsume_times", *(column.name for column in PAYLOAD_COLUMNS))
