"""The messages of one system as messages of the other.

RocketMQ's properties are strings. BlazingMQ's typed properties become text under their own names, and `bmq_types` keeps
the types; `bmq_raw` keeps other properties in BlazingMQ's encoding. A message that goes to RocketMQ and back therefore
has its own properties, and marks of its origin.

Existing marks stay: they name the first origin.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from bmqctl.carrying.bridge.names import (
    CACHED_LENGTH_MAX,
    FLAG,
    GUID,
    RAW,
    ROCKETMQ_ID,
    ROCKETMQ_OFFSET,
    ROCKETMQ_QUEUE,
    TYPES,
    UNIQUE_KEY,
    is_plain_for_rocketmq,
    is_system_name,
    to_blazingmq_name,
    to_rocketmq_name,
)
from bmqctl.client.remoting.bodies import BodyUnreadable, read_body
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.bmq.guid import GUID_VERSION, format_guid
from formats.bmq.wire.properties import Property, PropertyType, PropertyValue, decode_properties, encode_properties
from formats.errors import FormatError
from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import COMPRESSION_FLAGS, SystemFlag
from formats.rocketmq.properties import decode_properties as decode_rocketmq
from formats.rocketmq.remoting.batch import BatchMessage
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from formats.schema import Buffer

__all__ = [
    "ROCKETMQ_BODY_SIZE_MAX",
    "ROCKETMQ_PROPERTIES_SIZE_MAX",
    "Posted",
    "Unfit",
    "body_of",
    "message_for_topic",
    "posted_guid",
    "stored_body_of",
    "to_blazingmq",
    "to_rocketmq",
]

# The Java code keeps the length in a signed short.
ROCKETMQ_PROPERTIES_SIZE_MAX: Final = 0x7FFF
# A broker closes the connection at a longer frame, and at each retry.
ROCKETMQ_BODY_SIZE_MAX: Final = FRAME_BYTES_MAX - HEADER_BYTES_MAX
_NEWER_ENCODING: Final = 1
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_BOUNDS: Final = {
    PropertyType.CHAR: 1 << 7,
    PropertyType.SHORT: 1 << 15,
    PropertyType.INT32: 1 << 31,
    PropertyType.INT64: 1 << 63,
}
_CACHED: Final = 1024
# Plain integers: an enumeration's operators make new members.
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_INNER_BATCH: Final = int(SystemFlag.INNER_BATCH)


class Unfit(Exception):
    """A message that the other system cannot have; the text is the reason."""


class Posted(NamedTuple):
    """A message for BlazingMQ."""

    payload: Buffer
    properties: list[Property]


# To RocketMQ


def to_rocketmq(payload: Buffer, properties: Sequence[Property], guid: bytes, unique_id: str) -> BatchMessage:
    """Make the message for RocketMQ; its clients know it by `unique_id`. Raises `Unfit`."""
    parts = [UNIQUE_KEY, "\x01", unique_id, "\x02"]
    types: list[tuple[str, PropertyType]] = []
    raw: list[Property] = []
    flag = 0
    has_guid = False
    for each in properties:
        name, kind, value = each
        if name == FLAG and kind is PropertyType.INT32 and isinstance(value, int):
            flag = value
            continue
        wanted = to_rocketmq_name(name)
        text = value if kind is PropertyType.STRING else _text(kind, value)
        if wanted is None or not isinstance(text, str) or not is_plain_for_rocketmq(text):
            raw.append(each)
            continue
        has_guid |= wanted == GUID
        parts += (wanted, "\x01", text, "\x02")
        if kind is not PropertyType.STRING:
            types.append((wanted, kind))
    if not has_guid:
        parts += (GUID, "\x01", format_guid(guid), "\x02")
    if types:
        is_short = sum(len(name) for name, _ in types) <= CACHED_LENGTH_MAX
        parts += (TYPES, "\x01", (_types_text if is_short else _types_text.__wrapped__)(tuple(types)), "\x02")
    if raw:
        parts += (RAW, "\x01", base64.b64encode(encode_properties(raw, _NEWER_ENCODING)).decode(), "\x02")
    return message_for_topic(flag, payload, "".join(parts).encode())


def message_for_topic(flag: int, body: Buffer, properties: bytes) -> BatchMessage:
    """Make a message for RocketMQ from its parts. Raises `Unfit` if the properties or the body are too large."""
    if len(properties) > ROCKETMQ_PROPERTIES_SIZE_MAX:
        raise Unfit(f"properties of {len(properties)} bytes: RocketMQ takes {ROCKETMQ_PROPERTIES_SIZE_MAX}")
    if len(body) > ROCKETMQ_BODY_SIZE_MAX:
        raise Unfit(f"a body of {len(body)} bytes: RocketMQ takes {ROCKETMQ_BODY_SIZE_MAX}")
    return BatchMessage(flag, body, properties)


def _text(kind: PropertyType, value: PropertyValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        is_char = kind is PropertyType.CHAR
        return str(int.from_bytes(value, "big", signed=True)) if is_char else base64.b64encode(value).decode()
    return str(value)


@lru_cache(_CACHED)
def _types_text(types: tuple[tuple[str, PropertyType], ...]) -> str:
    return json.dumps({name: kind.name for name, kind in types}, separators=(",", ":"))


# To BlazingMQ


def to_blazingmq(record: Record, broker_name: str) -> Posted:
    """Make the message for BlazingMQ. Raises `Unfit`."""
    found = decode_rocketmq(record.properties)
    unique_id = found.get(UNIQUE_KEY, "")
    types = found.pop(TYPES, "")
    kinds = (_kinds if len(types) <= 2 * CACHED_LENGTH_MAX else _kinds.__wrapped__)(types) if types else {}
    properties = _raw(found)
    names = {each.name for each in properties}
    try:
        for name, text in found.items():
            if not name or not text or is_system_name(name):
                continue
            wanted = to_blazingmq_name(name)
            if wanted not in names:
                names.add(wanted)
                properties.append(_typed(wanted, kinds.get(name), text))
    except ValueError as fault:
        raise Unfit(str(fault)) from None
    properties += (mark for mark in _marks(record, broker_name, unique_id) if mark.name not in names)
    return Posted(body_of(record), properties)


def posted_guid(record: Record, broker_name: str, repeats: int = 0) -> bytes:
    """The GUID for posting a RocketMQ message, the same at each attempt.

    BlazingMQ accepts a GUID once within its domain's `deduplicationTimeMs`, so that a repeated message is not stored
    twice. Each number of `repeats` gives another GUID, for a message that must be stored once more.
    """
    place = f"{record.topic}/{broker_name}/{record.queue_id}/{record.queue_offset}/{record.physical_offset}"
    made = blake2b(f"{place}/{record.stored_ms}/{repeats}".encode(), digest_size=16).digest()
    return bytes((GUID_VERSION << 6 | made[0] & 0x3F,)) + made[1:]


def _marks(record: Record, broker_name: str, unique_id: str) -> list[Property]:
    queue = f"{record.topic}/{broker_name}/{record.queue_id}"
    marks = [
        Property(ROCKETMQ_QUEUE, PropertyType.STRING, queue),
        Property(ROCKETMQ_OFFSET, PropertyType.INT64, record.queue_offset),
    ]
    if unique_id:
        marks.append(Property(ROCKETMQ_ID, PropertyType.STRING, unique_id))
    if record.flag:
        marks.append(Property(FLAG, PropertyType.INT32, record.flag))
    return marks


def _raw(found: dict[str, str]) -> list[Property]:
    """Take out properties that RocketMQ could not have; an invalid encoding stays a property."""
    text = found.get(RAW)
    if text is None:
        return []
    try:
        properties = decode_properties(base64.b64decode(text, validate=True), _NEWER_ENCODING)
    except (ValueError, FormatError):
        return []
    del found[RAW]
    return properties


@lru_cache(_CACHED)
def _kinds(text: str) -> dict[str, PropertyType]:
    try:
        given = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(given, dict):
        return {}
    known = PropertyType.__members__
    return {name: known[kind] for name, kind in given.items() if isinstance(kind, str) and kind in known}


def _typed(name: str, kind: PropertyType | None, text: str) -> Property:
    value = None if kind is None or kind is PropertyType.STRING else _READ[kind](text)
    if kind is None or value is None:
        return Property(name, PropertyType.STRING, text)
    return Property(name, kind, value)


def _read_bool(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _read_integer(kind: PropertyType) -> Callable[[str], PropertyValue | None]:
    bound = _BOUNDS[kind]

    def read(text: str) -> PropertyValue | None:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -bound <= value < bound or str(value) != text:
            return None
        return value.to_bytes(1, "big", signed=True) if kind is PropertyType.CHAR else value

    return read


def _read_binary(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


_READ: Final[dict[PropertyType, Callable[[str], PropertyValue | None]]] = {
    PropertyType.BOOL: _read_bool,
    PropertyType.BINARY: _read_binary,
    **{kind: _read_integer(kind) for kind in _BOUNDS},
}


def stored_body_of(record: Record) -> tuple[Buffer, int]:
    """The message's body as stored, and the system flags of its compression. Raises `Unfit`."""
    if record.system_flags & _INNER_BATCH:
        raise Unfit("a batch that is stored as one message")
    flags = record.system_flags
    return record.body, flags & COMPRESSION_FLAGS if flags & _COMPRESSED else 0


def body_of(record: Record) -> Buffer:
    """The decompressed body; a view if it was not compressed. Raises `Unfit`."""
    try:
        return read_body(record, DECOMPRESSED_SIZE_MAX)
    except BodyUnreadable as fault:
        raise Unfit(str(fault)) from None
