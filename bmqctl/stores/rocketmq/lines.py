"""Lines of JSON that describe RocketMQ messages, with the names that `bmqctl journal dump` prints.

Values that follow from others (`stored`, `offset_id`, `body_size`, `payload_size`) are ignored, so that a dump can be
read back. Other unknown names are rejected, so that no misspelling is lost.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final, NamedTuple

from formats.rocketmq.files.record import Magic, Record, body_crc, record_bytes
from formats.rocketmq.flags import CompressionType, SystemFlag, compression_of
from formats.rocketmq.hosts import Host
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import encode_properties

__all__ = ["BadMessage", "MessageLine", "parse_message"]

_I32: Final = (-(1 << 31), (1 << 31) - 1)
_I64: Final = (-(1 << 63), (1 << 63) - 1)
# The end of year 9999.
_TIME: Final = (0, 253_402_300_800_000 - 1)
_OFFSET: Final = (0, (1 << 62) - 1)
_NUMBERS: Final = {
    "offset": _OFFSET,
    "size": _OFFSET,
    "queue_id": (0, (1 << 16) - 1),
    "queue_offset": (0, (1 << 56) - 1),
    "stored_ms": _TIME,
    "born_ms": _I64,
    "flag": _I32,
    "system_flags": _I32,
    "reconsume_times": _I32,
    "prepared_transaction_offset": _I64,
    "body_crc": (0, (1 << 32) - 1),
}
_TEXTS: Final = ("topic", "born_host", "store_host", "payload", "payload_hex", "body_hex")
_IMPLIED: Final = frozenset({"stored", "offset_id", "body_size", "payload_size"})
_BODIES: Final = ("payload", "payload_hex", "body_hex")
_NAMES: Final = frozenset({*_NUMBERS, *_TEXTS, *_IMPLIED, "properties"})

_HOST: Final = "127.0.0.1:10911"
_V1_TOPIC_BYTES_MAX: Final = 127
_TOPIC_BYTES_MAX: Final = 255  # a folder's name
_PROPERTIES_BYTES_MAX: Final = 0x7FFF
_V6: Final = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
# The default level of Java's client.
_ZLIB_LEVEL: Final = 5


class BadMessage(Exception):
    """A line that is not a message, or an unusable description; the text is the reason."""


class MessageLine(NamedTuple):
    """A line: the record, and its offset and queue offset, given or implied by earlier lines."""

    record: Record
    properties: dict[str, str]
    size: int
    offset: int | None
    queue_offset: int | None


def parse_message(text: str, stored_ms: int) -> MessageLine:
    """Read a line; `stored_ms` is the default time. Raises `BadMessage`."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"is not JSON: {error}") from None
    if not isinstance(line, dict):
        raise BadMessage("is not a JSON object")
    _check(line)
    try:
        return _message(line, stored_ms)
    except UnicodeEncodeError as error:
        raise BadMessage(f"has half of a surrogate pair, which is no text, at {error.start}") from None


def _check(line: dict[str, Any]) -> None:
    """Raise `BadMessage` for unknown names and impossible values."""
    if "fault" in line:
        raise BadMessage("is a fault of a damaged log: leave such lines out (jq -c 'select(.fault | not)')")
    if "payload_omitted" in line or "payload_fault" in line:
        raise BadMessage(
            "payload: is not all of it: dump with --payload-limit 0, and compressed bodies as --payload stored"
        )
    unknown = sorted(line.keys() - _NAMES)
    if unknown:
        raise BadMessage(f"{unknown[0]}: is unknown; a message has {', '.join(sorted(_NAMES - _IMPLIED))}")
    for name, (low, high) in _NUMBERS.items():
        value = line.get(name)
        if name in line and (type(value) is not int or not low <= value <= high):
            raise BadMessage(f"{name}: is not a number between {low} and {high}")
    for name in _TEXTS:
        if name in line and not isinstance(line[name], str):
            raise BadMessage(f"{name}: is no text")
    properties = line.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise BadMessage("properties: is no object of texts")
    if sum(name in line for name in _BODIES) > 1:
        raise BadMessage(f"{', '.join(_BODIES)}: give at most one of them")


def _message(line: dict[str, Any], stored_ms: int) -> MessageLine:
    topic = _topic(line)
    version = Magic.V1 if len(topic.encode()) <= _V1_TOPIC_BYTES_MAX else Magic.V2
    born, stored = (_host(line, name) for name in ("born_host", "store_host"))
    flags = line.get("system_flags", 0) & ~_V6
    flags |= int(SystemFlag.BORN_HOST_V6) if len(born) > len(Host("0.0.0.0", 0).pack()) else 0
    flags |= int(SystemFlag.STORE_HOST_V6) if len(stored) > len(Host("0.0.0.0", 0).pack()) else 0
    body = _body(line, flags)
    crc = body_crc(body)
    if line.get("body_crc", crc) != crc:
        raise BadMessage(
            f"body_crc: {line['body_crc']}, but the body has {crc}; dump with --payload stored, which keeps bodies as "
            "they are, or omit body_crc if the body was changed"
        )
    properties: dict[str, str] = line.get("properties", {})
    encoded = _properties(properties)
    size = record_bytes(version, flags, len(body), len(topic.encode()), len(encoded))
    given = line.get("size", size)
    if given == size - 1 and encoded:
        # Older clients leave out the last separator.
        encoded, size = encoded[:-1], given
    if given != size:
        raise BadMessage(f"size: {given}, but the record has {size}; omit size and offset if the message was changed")
    ms = line.get("stored_ms", stored_ms)
    record = Record(
        version=version,
        body_crc=crc,
        queue_id=line.get("queue_id", 0),
        flag=line.get("flag", 0),
        queue_offset=0,
        physical_offset=0,
        system_flags=flags,
        born_ms=line.get("born_ms", ms),
        born_host=born,
        stored_ms=ms,
        store_host=stored,
        reconsume_times=line.get("reconsume_times", 0),
        prepared_transaction_offset=line.get("prepared_transaction_offset", 0),
        body=body,
        topic=topic,
        properties=encoded,
    )
    return MessageLine(record, properties, size, line.get("offset"), line.get("queue_offset"))


def _topic(line: dict[str, Any]) -> str:
    topic: str = line.get("topic", "")
    if not topic:
        raise BadMessage("topic: is required")
    if topic in (".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > _TOPIC_BYTES_MAX:
        raise BadMessage("topic: cannot be the name of a folder, which the topic of a queue is")
    return topic


def _host(line: dict[str, Any], name: str) -> bytes:
    """A packed host; a dump has hexadecimal digits of one that is invalid."""
    text = line.get(name, _HOST)
    try:
        packed = _split(text).pack() if ":" in text else bytes.fromhex(text)
    except ValueError:
        packed = b""
    if len(packed) not in (8, 20):
        raise BadMessage(f"{name}: is not ADDRESS:PORT")
    return packed


def _split(text: str) -> Host:
    address, _, digits = text.rpartition(":")
    port = read_digits(digits, 0xFFFF) if len(digits) <= 5 else None
    if port is None:
        raise ValueError(text)
    return Host(address.strip("[]"), port)


def _body(line: dict[str, Any], flags: int) -> bytes:
    """The body as stored. A payload is compressed as Java's client does if the flags say so."""
    for name in ("body_hex", "payload_hex"):
        try:
            data = bytes.fromhex(line.get(name, ""))
        except ValueError:
            raise BadMessage(f"{name}: is not hexadecimal") from None
        if name == "body_hex" and name in line:
            return data
    payload: bytes = line["payload"].encode() if "payload" in line else data
    try:
        compression = compression_of(flags)
    except ValueError:
        raise BadMessage("system_flags: no version compresses in this way: dump with --payload stored") from None
    if compression is None:
        return payload
    if compression is not CompressionType.ZLIB:
        raise BadMessage("payload: of the compressions only zlib is known here: dump with --payload stored")
    return zlib.compress(payload, _ZLIB_LEVEL)


def _properties(properties: dict[str, str]) -> bytes:
    try:
        encoded = encode_properties(properties)
    except UnicodeEncodeError:
        raise
    except ValueError as error:
        raise BadMessage(f"properties: {error}") from None
    if len(encoded) > _PROPERTIES_BYTES_MAX:
        raise BadMessage(f"properties: {len(encoded)} bytes, more than the {_PROPERTIES_BYTES_MAX} that a record takes")
    return encoded
