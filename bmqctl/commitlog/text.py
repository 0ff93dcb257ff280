"""Records of a commit log as JSON lines, many at a time.

One template is filled with columns of values; topics, hosts and seconds, which records have in common, are formatted
once. The lines equal those of `rows_of`, which makes those of records that are out of the ordinary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from bmqctl.commitlog.payload import BodyReader
from bmqctl.commitlog.records import LogRecords, Numbers
from bmqctl.commitlog.rows import host_text, rows_of, time_text
from bmqctl.commitlog.scan import LogFault
from formats.rocketmq.properties import decode_properties

__all__ = ["JsonLines"]

_Slot = tuple[bytes, list[bytes] | Numbers]
"""A part of a template with one place for a value, and the values of all lines."""

_REMEMBERED: Final = 1 << 16
# The end of year 9999.
_TIME_MAX_MS: Final = 253_402_300_800_000 - 1
_SEPARATORS: Final = b"\1\2\n"
_PLAIN: Final = bytes(set(range(32, 127)) - set(b'"\\'))


class JsonLines:
    """Formats records and faults, a line each."""

    def __init__(self, bodies: BodyReader | None = None) -> None:
        self._bodies = bodies
        self._topics = _Memo(lambda topic: json.dumps(topic.decode(errors="replace")).encode())
        self._hosts = _Memo(lambda host: json.dumps(host_text(host)).encode())
        self._digits = _Memo(lambda host: host.hex().upper().encode())
        self._seconds = _Memo(lambda seconds: (time_text(1000 * seconds) or "")[:-4].encode())
        self._properties = _Memo(lambda data: json.dumps(decode_properties(data)).encode())

    def text(self, records: LogRecords, faults: Sequence[LogFault] = ()) -> bytes:
        """Format records and faults in the order of the log."""
        stored = records.stored_ms
        is_ordinary = self._bodies is None and not faults and bool(len(records))
        if not is_ordinary or stored.min() < 0 or stored.max() > _TIME_MAX_MS:
            return b"".join(json.dumps(row).encode() + b"\n" for row in rows_of(records, faults, self._bodies))
        return _filled(self._slots(records))

    def _slots(self, records: LogRecords) -> Iterator[_Slot]:
        stored, hosts = records.stored_ms, records.store_hosts
        yield b'{"offset": %d', records.offsets
        yield b', "size": %d', records.sizes
        yield b', "topic": %b', self._topics.all(records.topics())
        yield b', "queue_id": %d', records.front("queue_id")
        yield b', "queue_offset": %d', records.front("queue_offset")
        yield b', "stored_ms": %d', stored
        yield b', "stored": "%b', self._seconds.all((stored // 1000).tolist())
        yield b'%03dZ"', stored % 1000
        yield b', "born_ms": %d', records.front("born_ms")
        yield b', "born_host": %b', self._hosts.all(records.born_hosts)
        yield b', "store_host": %b', self._hosts.all(hosts)
        yield b', "offset_id": "%b', self._digits.all(hosts)
        yield b'%016X"', records.offsets
        yield b', "flag": %d', records.front("flag")
        yield b', "system_flags": %d', records.flags
        yield b', "reconsume_times": %d', records.reconsume_times
        yield b', "prepared_transaction_offset": %d', records.prepared_transaction_offsets
        yield b', "body_size": %d', records.body_sizes
        yield b', "body_crc": %d', records.front("body_crc")
        properties = records.properties()
        plain = _plain_members(properties)
        if plain is None:
            yield b', "properties": %b}\n', self._properties.all(properties)
        else:
            yield b', "properties": {"%b"}}\n', plain


def _filled(slots: Iterable[_Slot]) -> bytes:
    """Lines of a template's slots. Of all but the first, those with the same value in all lines are filled once."""
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


class _Memo(dict[Any, bytes]):
    """A cache of texts by what they are made of."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> bytes:
        text = self[key] = self._make(key)
        return text

    def all(self, keys: list[Any]) -> list[bytes]:
        """The texts of all keys."""
        if len(self) > _REMEMBERED:
            self.clear()
        return list(map(self.__getitem__, keys))


def _plain_members(properties: list[bytes]) -> list[bytes] | None:
    """The members of JSON objects, without the first and the last quote, by replacing the separators of properties.

    None if some properties are not to be had so.
    """
    # The last property of a record may be without its separator, and a record without properties.
    whole = b"\n".join(properties).replace(b"\2\n", b"\n").removesuffix(b"\2")
    if whole.translate(None, _PLAIN + _SEPARATORS):
        return None
    marks = (b"\n" + whole).translate(None, _PLAIN)
    if marks.replace(b"\1\2", b"") != b"\n\1" * len(properties):
        return None
    lines = whole.replace(b"\1", b'": "').replace(b"\2", b'", "').split(b"\n")
    return lines if len(lines) == len(properties) else None
