"""Commit log records as columns of values: each topic, host and second is formatted once for many records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from bmqctl.stores.rocketmq.dump.rows import host_text, time_text
from bmqctl.stores.rocketmq.read.payload import BodyReader
from bmqctl.stores.rocketmq.read.records import LogRecords
from formats.rocketmq.properties import decode_properties

__all__ = ["LogColumns", "Memo", "plain_members"]

V = TypeVar("V")

_REMEMBERED: Final = 1 << 16
_SEPARATORS: Final = b"\1\2\n"
_PLAIN: Final = bytes(set(range(32, 127)) - set(b'"\\'))
_NUMBERS: Final = ("queue_id", "queue_offset", "flag", "born_ms", "body_crc")


class Memo(dict[Any, V], Generic[V]):
    """A cache of values by the key that makes them."""

    def __init__(self, make: Callable[[Any], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> V:
        value = self[key] = self._make(key)
        return value

    def all(self, keys: list[Any]) -> list[V]:
        if len(self) > _REMEMBERED:
            self.clear()
        return list(map(self.__getitem__, keys))


class LogColumns:
    """Makes the columns of a dump, by name. A column that no record has is missing; properties are JSON text."""

    def __init__(self, bodies: BodyReader | None) -> None:
        self._bodies = bodies
        self._topics: Memo[str] = Memo(lambda topic: topic.decode(errors="replace"))
        self._hosts: Memo[str] = Memo(host_text)
        self._digits: Memo[str] = Memo(lambda host: host.hex().upper())
        self._seconds: Memo[str | None] = Memo(_second_text)
        self._properties: Memo[str] = Memo(lambda data: json.dumps(decode_properties(data)))

    def of(self, records: LogRecords) -> dict[str, Sequence[Any]]:
        stored, hosts, offsets = records.stored_ms, records.store_hosts, records.offsets.tolist()
        seconds = self._seconds.all((stored // 1000).tolist())
        columns: dict[str, Sequence[Any]] = {
            "offset": offsets,
            "size": records.sizes.tolist(),
            "topic": self._topics.all(records.topics()),
            "stored_ms": stored.tolist(),
            "stored": [
                None if second is None else f"{second}.{ms:03d}Z"
                for second, ms in zip(seconds, (stored % 1000).tolist(), strict=True)
            ],
            "born_host": self._hosts.all(records.born_hosts),
            "store_host": self._hosts.all(hosts),
            "offset_id": [
                f"{digits}{offset:016X}" for digits, offset in zip(self._digits.all(hosts), offsets, strict=True)
            ],
            "system_flags": records.flags.tolist(),
            "reconsume_times": records.reconsume_times.tolist(),
            "prepared_transaction_offset": records.prepared_transaction_offsets.tolist(),
            "body_size": records.body_sizes.tolist(),
            "properties": self._texts_of(records.properties()),
            **{name: records.front(name).tolist() for name in _NUMBERS},
        }
        return columns if self._bodies is None else columns | self._bodies.columns(records)

    def _texts_of(self, properties: list[bytes]) -> list[str]:
        plain = plain_members(properties)
        if plain is None:
            return self._properties.all(properties)
        return [f'{{"{members.decode()}"}}' for members in plain]


def _second_text(second: int) -> str | None:
    text = time_text(1000 * second)
    return None if text is None else text[: -len(".000Z")]


def plain_members(properties: list[bytes], quote: bytes = b'"') -> list[bytes] | None:
    """Members of JSON objects, without the first and last quote, made by replacing the separators of properties.

    None if replacement cannot express some properties.
    """
    # A record's last property may lack its separator, and a record may have no properties.
    whole = b"\n".join(properties).replace(b"\2\n", b"\n").removesuffix(b"\2")
    if whole.translate(None, _PLAIN + _SEPARATORS):
        return None
    marks = (b"\n" + whole).translate(None, _PLAIN)
    # In each record the separators alternate, and an end of a name is both the first and the last.
    if any(marks.replace(pair, b"") != b"\n\1" * len(properties) for pair in (b"\1\2", b"\2\1")):
        return None
    if _has_repeated_names(whole):
        return None
    whole = whole.replace(b"\1", quote + b": " + quote).replace(b"\2", quote + b", " + quote)
    lines = whole.split(b"\n")
    return lines if len(lines) == len(properties) else None


def _has_repeated_names(lines: bytes) -> bool:
    """Return True if a record has several properties of one name, of which only the last counts.

    `lines` has a line for each record; its two separators alternate.
    """
    codes = np.frombuffer(lines, np.uint8)
    steps = (codes == 1).view(np.int8) - ((codes == 2) | (codes == ord("\n"))).view(np.int8)
    is_of_name = np.cumsum(steps, dtype=np.int8) == 0  # or the end of a value
    for line in set(codes[is_of_name].tobytes().split(b"\n")):
        names = line.split(b"\2")
        if len(set(names)) < len(names):
            return True
    return False
