"""Records of a commit log as JSON lines, many at a time.

One template is filled with columns of values; topics, hosts and seconds, which records have in common, are formatted
once. The lines equal those of `rows_of`, which makes those of records that are out of the ordinary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bmqctl.commitlog.columns import Memo, plain_members
from bmqctl.commitlog.payload import BodyReader
from bmqctl.commitlog.records import LogRecords, Numbers
from bmqctl.commitlog.rows import host_text, rows_of, time_text
from bmqctl.commitlog.scan import LogFault
from formats.rocketmq.properties import decode_properties

__all__ = ["JsonLines"]

_Slot = tuple[bytes, list[bytes] | Numbers]
"""A part of a template with one place for a value, and the values of all lines."""

# The end of year 9999.
_TIME_MAX_MS: Final = 253_402_300_800_000 - 1


class JsonLines:
    """Formats records and faults, a line each."""

    def __init__(self, bodies: BodyReader | None = None) -> None:
        self._bodies = bodies
        self._topics: Memo[bytes] = Memo(lambda topic: json.dumps(topic.decode(errors="replace")).encode())
        self._hosts: Memo[bytes] = Memo(lambda host: json.dumps(host_text(host)).encode())
        self._digits: Memo[bytes] = Memo(lambda host: host.hex().upper().encode())
        self._seconds: Memo[bytes] = Memo(lambda seconds: (time_text(1000 * seconds) or "")[:-4].encode())
        self._properties: Memo[bytes] = Memo(lambda data: json.dumps(decode_properties(data)).encode())

    def text(self, records: LogRecords, faults: Sequence[LogFault] = ()) -> bytes:
        """Format records and faults in the order of the log."""
        stored = records.stored_ms
        is_ordinary = not faults and bool(len(records))
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
        plain = plain_members(properties)
        end = b"}\n" if self._bodies is None else b""
        if plain is None:
            yield b', "properties": %b' + end, self._properties.all(properties)
        else:
            yield b', "properties": {"%b"}' + end, plain
        if self._bodies is not None:
            yield b"%b}\n", self._bodies.members(records)


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
