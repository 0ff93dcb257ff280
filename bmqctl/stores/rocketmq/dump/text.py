"""Records of a commit log as JSON lines or CSV, many at a time.

One template is filled with columns of values; each topic, host and second is formatted once. The lines equal those of
`rows_of`, which formats unusual records.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bmqctl.common.harmless import csv_text
from bmqctl.stores.blazingmq.read.columns import Kind
from bmqctl.stores.rocketmq.dump.rows import columns_with, host_text, rows_of, time_text
from bmqctl.stores.rocketmq.read.columns import Memo, plain_members
from bmqctl.stores.rocketmq.read.payload import PAYLOAD_COLUMNS, BodyReader, BodyValues
from bmqctl.stores.rocketmq.read.records import LogRecords, Numbers
from bmqctl.stores.rocketmq.read.scan import LogFault
from formats.rocketmq.properties import decode_properties

__all__ = ["CsvLines", "JsonLines"]

_Slot = tuple[bytes, list[bytes] | Numbers]
"""A part of a template with one slot, and the values of all lines."""

# The end of year 9999.
_TIME_MAX_MS: Final = 253_402_300_800_000 - 1


class JsonLines:
    """Formats records and faults as an object a line."""

    def __init__(self, bodies: BodyReader | None = None) -> None:
        self._bodies = bodies
        self._lines = _Lines(bodies, _JSON)

    def text(self, records: LogRecords, faults: Sequence[LogFault] = ()) -> bytes:
        if not faults and _is_ordinary(records):
            return self._lines.text(records)
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows_of(records, faults, self._bodies))


class CsvLines:
    """Formats records and faults as CSV after a header row."""

    def __init__(self, bodies: BodyReader | None = None) -> None:
        self._bodies = bodies
        self._columns = columns_with(bodies)
        self._lines = _Lines(bodies, _CSV)
        self.names = _csv_rows([[column.name for column in self._columns]])

    def text(self, records: LogRecords, faults: Sequence[LogFault] = ()) -> bytes:
        if not faults and _is_ordinary(records):
            return self._lines.text(records)
        return _csv_rows(
            [
                json.dumps(row[column.name])
                if column.kind is Kind.JSON and column.name in row
                else row.get(column.name)
                for column in self._columns
            ]
            for row in rows_of(records, faults, self._bodies)
        )


def _is_ordinary(records: LogRecords) -> bool:
    stored = records.stored_ms
    return bool(len(records)) and bool(stored.min() >= 0) and bool(stored.max() <= _TIME_MAX_MS)


def _csv_rows(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [csv_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return text.getvalue().encode()


class _Style(NamedTuple):
    """The text before each value, around texts and objects, and at the end of a line."""

    head: Callable[[str], bytes]
    quoted: Callable[[str], str]
    mark: bytes
    # The start and end of an object of properties, and the quotes in it.
    object_front: bytes
    object_end: bytes
    object_quote: bytes
    body: Callable[[BodyValues], str]
    end: bytes


class _Lines:
    """Formats ordinary records."""

    def __init__(self, bodies: BodyReader | None, style: _Style) -> None:
        self._bodies = bodies
        self._style = style
        quoted = style.quoted
        self._topics: Memo[bytes] = Memo(lambda topic: quoted(topic.decode(errors="replace")).encode())
        self._hosts: Memo[bytes] = Memo(lambda host: quoted(host_text(host)).encode())
        self._digits: Memo[bytes] = Memo(lambda host: host.hex().upper().encode())
        self._seconds: Memo[bytes] = Memo(lambda seconds: (time_text(1000 * seconds) or "")[:-4].encode())
        as_text = json.dumps if style is _JSON else lambda value: quoted(json.dumps(value))
        self._properties: Memo[bytes] = Memo(lambda data: as_text(decode_properties(data)).encode())

    def text(self, records: LogRecords) -> bytes:
        return _filled(self._slots(records))

    def _slots(self, records: LogRecords) -> Iterator[_Slot]:
        style = self._style
        head, mark = style.head, style.mark
        stored, hosts = records.stored_ms, records.store_hosts
        yield head("offset") + b"%d", records.offsets
        yield head("size") + b"%d", records.sizes
        yield head("topic") + b"%b", self._topics.all(records.topics())
        yield head("queue_id") + b"%d", records.front("queue_id")
        yield head("queue_offset") + b"%d", records.front("queue_offset")
        yield head("stored_ms") + b"%d", stored
        yield head("stored") + mark + b"%b", self._seconds.all((stored // 1000).tolist())
        yield b"%03dZ" + mark, stored % 1000
        yield head("born_ms") + b"%d", records.front("born_ms")
        yield head("born_host") + b"%b", self._hosts.all(records.born_hosts)
        yield head("store_host") + b"%b", self._hosts.all(hosts)
        yield head("offset_id") + mark + b"%b", self._digits.all(hosts)
        yield b"%016X" + mark, records.offsets
        yield head("flag") + b"%d", records.front("flag")
        yield head("system_flags") + b"%d", records.flags
        yield head("reconsume_times") + b"%d", records.reconsume_times
        yield head("prepared_transaction_offset") + b"%d", records.prepared_transaction_offsets
        yield head("body_size") + b"%d", records.body_sizes
        yield head("body_crc") + b"%d", records.front("body_crc")
        properties = records.properties()
        plain = plain_members(properties, style.object_quote)
        end = style.end if self._bodies is None else b""
        if plain is None:
            yield head("properties") + b"%b" + end, self._properties.all(properties)
        else:
            yield head("properties") + style.object_front + b"%b" + style.object_end + end, plain
        if self._bodies is not None:
            yield b"%b" + style.end, self._bodies.texts(records, style.body)


def _json_head(name: str) -> bytes:
    return b'{"offset": ' if name == "offset" else b', "%b": ' % name.encode()


_json_text = json.encoder.encode_basestring_ascii
_NO_REST: Final[list[int | str | None]] = [None] * 4
_BODY_HEADS: Final = tuple(f', "{column.name}": ' for column in PAYLOAD_COLUMNS)


def _json_body(values: BodyValues) -> str:
    size, text, *rest = values
    if text is not None and rest == _NO_REST:
        return f', "payload_size": {size}, "payload": {_json_text(text)}'
    return "".join(
        [
            f"{head}{_json_text(value) if isinstance(value, str) else value}"
            for head, value in zip(_BODY_HEADS, values, strict=True)
            if value is not None
        ]
    )


def _csv_text(text: str) -> str:
    text = csv_text(text)
    if _IN_QUOTES.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


_IN_QUOTES: Final = re.compile(r'[",\n\r]')


def _csv_body(values: BodyValues) -> str:
    return "," + ",".join(
        ["" if value is None else _csv_text(value) if isinstance(value, str) else str(value) for value in values]
    )


_JSON: Final = _Style(_json_head, _json_text, b'"', b'{"', b'"}', b'"', _json_body, b"}\n")
# The column of faults is the last.
_CSV: Final = _Style(
    lambda name: b"" if name == "offset" else b",", _csv_text, b"", b'"{""', b'""}"', b'""', _csv_body, b",\n"
)


def _filled(slots: Iterable[_Slot]) -> bytes:
    """Lines of a template's slots. A constant slot is filled once, unless it is the first."""
    template = b""
    columns: list[list[Any]] = []
    for slot, values in slots:
        if isinstance(values, list):
            is_one = values.count(values[0]) == len(values)
        else:
            is_one = bool((values == values[0]).all())
        if is_one and columns:
            template += (slot % values[0]).replace(b"%", b"%%")
        else:
            template += slot
            columns.append(values if isinstance(values, list) else values.tolist())
    return b"".join(map(template.__mod__, zip(*columns, strict=True)))
