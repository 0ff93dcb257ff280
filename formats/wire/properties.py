"""Message properties: named, typed values before the payload (source: bmqp::MessageProperties).

MessagePropertiesHeader, 6 bytes, once:

    | Reserved 2 | PropertyHeaderSize/2 3 | HeaderSize/2 3 | AreaWords 24 |
    | Reserved 8 | NumProperties 8        |

MessagePropertyHeader, 6 bytes, for every property:

    | Reserved 1 | Type 5 | ValueLength or Offset 26 |
    | Reserved 4 | NameLength 12                     |

then for every property its name and its value, then padding to words. AreaWords counts all of it.

The older encoding (the message's schema id is 0) has each value's length in its header. The newer one (a schema id
above 0) has the offset of each name from the first one, so that a reader that knows the schema, which names at which
positions, finds one property without reading the others. A schema id is twice a number, plus 1 if the sender uses the
number anew; number 0 is no schema at all, so that schema id 1 is the newer encoding without one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from formats.codes import (
    PROPERTIES_MAX,
    PROPERTIES_SIZE_MAX,
    PROPERTY_NAME_SIZE_MAX,
    PROPERTY_VALUE_SIZE_MAX,
    PropertyType,
)
from formats.errors import FormatError
from formats.padding import WORD, padding, unpadded_end
from formats.schema import Annotated, Buffer, Layout, bits, u8

__all__ = [
    "PROPERTIES_HEADER",
    "PROPERTY_HEADER",
    "Property",
    "PropertyType",
    "PropertyValue",
    "decode_properties",
    "encode_properties",
    "properties_size",
    "to_older_encoding",
]

PropertyValue = bool | int | str | bytes


class MessagePropertiesHeader(NamedTuple):
    """First in the area."""

    reserved_bits: Annotated[int, bits(2, word=32)]
    property_header_size_2x: Annotated[int, bits(3)]
    header_size_2x: Annotated[int, bits(3)]
    area_words: Annotated[int, bits(24)]
    reserved: Annotated[int, u8]
    num_properties: Annotated[int, u8]


class MessagePropertyHeader(NamedTuple):
    """One for every property; `value_length` is an offset in the newer encoding."""

    reserved_bit: Annotated[int, bits(1)]
    type: Annotated[int, bits(5)]
    value_length: Annotated[int, bits(26)]
    reserved_bits: Annotated[int, bits(4)]
    name_length: Annotated[int, bits(12)]


PROPERTIES_HEADER = Layout(MessagePropertiesHeader, size=6, upstream="bmqp::MessagePropertiesHeader")
PROPERTY_HEADER = Layout(MessagePropertyHeader, size=6, upstream="bmqp::MessagePropertyHeader")

_NUMBERS = {
    PropertyType.BOOL: struct.Struct(">?"),
    PropertyType.SHORT: struct.Struct(">h"),
    PropertyType.INT32: struct.Struct(">i"),
    PropertyType.INT64: struct.Struct(">q"),
}
_PATH = "MessageProperties"


class Property(NamedTuple):
    """A property; what its value is in Python:

    BOOL bool; SHORT, INT32 and INT64 int; CHAR one byte; STRING str; BINARY bytes. Names and strings are UTF-8;
    bytes that are not stand in them as surrogates (`surrogateescape`), so that they survive a round trip.
    """

    name: str
    type: PropertyType
    value: PropertyValue


class _Span(NamedTuple):
    """Where a property's parts are: `[name, value)` and `[value, end)`."""

    type: int
    name: int
    value: int
    end: int


def properties_size(data: Buffer) -> int:
    """Bytes of the properties' area at the head of a message's data; FormatError if it does not fit."""
    header = PROPERTIES_HEADER.unpack(data)
    size = header.area_words * WORD
    if not PROPERTIES_HEADER.size < size <= len(data):
        raise FormatError(f"{_PATH}Header.area_words", 0, f"{header.area_words}, in {len(data)} bytes of data")
    return size


def decode_properties(data: Buffer, schema_id: int) -> list[Property]:
    """The properties at the head of a message's data, in their order; what follows them is the payload.

    FormatError unless every length, type and name is sound; no two may have the same name.
    """
    out: list[Property] = []
    names: set[str] = set()
    for span in _spans(data, schema_id):
        name = str(data[span.name : span.value], "utf-8", "surrogateescape")
        if name in names:
            raise FormatError(f"{_PATH}.{name}", span.name, "comes a second time")
        names.add(name)
        out.append(_property(data, span, name))
    return out


def _property(data: Buffer, span: _Span, name: str) -> Property:
    raw = bytes(data[span.value : span.end])
    try:
        kind = PropertyType(span.type)
    except ValueError:
        raise FormatError(f"{_PATH}.{name}", span.name, f"{span.type} is no property type") from None
    number = _NUMBERS.get(kind)
    size = number.size if number else 1 if kind is PropertyType.CHAR else len(raw)
    if len(raw) != size:
        raise FormatError(f"{_PATH}.{name}", span.value, f"a value of {len(raw)} bytes is no {kind.name}")
    if number:
        # As the reference, takes 1 for true and any other byte for false.
        return Property(name, kind, raw == b"\1" if kind is PropertyType.BOOL else number.unpack(raw)[0])
    return Property(name, kind, str(raw, "utf-8", "surrogateescape") if kind is PropertyType.STRING else raw)


def _spans(data: Buffer, schema_id: int) -> list[_Span]:
    size = properties_size(data)
    header = PROPERTIES_HEADER.unpack(data)
    first = header.header_size_2x * 2
    step = header.property_header_size_2x * 2
    count = header.num_properties
    content = first + count * step
    end = unpadded_end(data, 0, size, f"{_PATH}.padding")
    if first < PROPERTIES_HEADER.size or step < PROPERTY_HEADER.size or not count or content > end:
        reason = f"{count} properties, headers of {first} and {step} bytes, in an area of {size}"
        raise FormatError(f"{_PATH}Header", 0, reason)
    heads = [PROPERTY_HEADER.unpack(data, first + index * step) for index in range(count)]
    if schema_id:
        starts = [content + head.value_length for head in heads]
    else:
        starts = [content]
        for head in heads:
            starts.append(starts[-1] + head.name_length + head.value_length)
        if starts.pop() != end:
            raise FormatError(f"{_PATH}Header", 0, f"names and values do not end at {end}")
    spans: list[_Span] = []
    for head, start, stop in zip(heads, starts, [*starts[1:], end], strict=True):
        value = start + head.name_length
        if not value <= stop <= end or (not spans and start != content):
            raise FormatError(f"{_PATH}Header", first + len(spans) * step, "names and values overlap or leave gaps")
        spans.append(_Span(head.type, start, value, stop))
    return spans


def encode_properties(properties: Iterable[Property], schema_id: int) -> bytes:
    """The area, padded, of properties in the order of their names, as the reference writes them.

    ValueError for no properties, more than 255, a name that comes twice, or a value that its type cannot hold.
    """
    parts = sorted((_encoded(each.name), each.type, _value_bytes(each)) for each in properties)
    if not 1 <= len(parts) <= PROPERTIES_MAX or len({name for name, _, _ in parts}) != len(parts):
        raise ValueError(f"{len(parts)} properties: their names must differ, and be 1..{PROPERTIES_MAX}")
    heads: list[bytes] = []
    content: list[bytes] = []
    offset = 0
    for name, kind, value in parts:
        if len(name) > PROPERTY_NAME_SIZE_MAX or len(value) > PROPERTY_VALUE_SIZE_MAX:
            raise ValueError(f"property {name[:40]!r}: a name of {len(name)} bytes, a value of {len(value)}: too long")
        length = offset if schema_id else len(value)
        heads.append(PROPERTY_HEADER.pack(MessagePropertyHeader(0, kind, length, 0, len(name))))
        content += (name, value)
        offset += len(name) + len(value)
    size = PROPERTIES_HEADER.size + len(heads) * PROPERTY_HEADER.size + offset
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(f"properties of {size} bytes: the limit is {PROPERTIES_SIZE_MAX}")
    tail = padding(size)
    header = MessagePropertiesHeader(
        0, PROPERTY_HEADER.size // 2, PROPERTIES_HEADER.size // 2, (size + len(tail)) // WORD, 0, len(heads)
    )
    return b"".join((PROPERTIES_HEADER.pack(header), *heads, *content, tail))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _value_bytes(item: Property) -> bytes:
    kind, value = item.type, item.value
    number = _NUMBERS.get(kind)
    wanted = bool if kind is PropertyType.BOOL else int if number else str if kind is PropertyType.STRING else bytes
    if type(value) is not wanted:
        raise ValueError(f"property {item.name!r}: {value!r} is no {kind.name}")
    if number:
        try:
            return number.pack(value)
        except struct.error:
            raise ValueError(f"property {item.name!r}: {value!r} does not fit {kind.name}") from None
    raw = _encoded(value) if isinstance(value, str) else bytes(value)
    if kind is PropertyType.CHAR and len(raw) != 1:
        raise ValueError(f"property {item.name!r}: {len(raw)} bytes are no {kind.name}")
    return raw


def to_older_encoding(data: Buffer) -> bytes:
    """The area at the head of `data`, of the newer encoding, in the older one, which has the same size.

    For clients that do not know the newer one (source: bmqp::ProtocolUtil::convertToOld).
    """
    out = bytearray(data[: properties_size(data)])
    header = PROPERTIES_HEADER.unpack(out)
    at = header.header_size_2x * 2
    for span in _spans(data, 1):
        head = PROPERTY_HEADER.unpack(out, at)
        PROPERTY_HEADER.pack_into(out, at, head._replace(value_length=span.end - span.value))
        at += header.property_header_size_2x * 2
    return bytes(out)
