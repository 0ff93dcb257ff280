"""Message properties: named, typed values before the payload (source: bmqp::MessageProperties).

A `MessagePropertiesHeader`, a `MessagePropertyHeader` for every property, then every property's name and value, then
padding to words.

In the older encoding (schema id 0) a property's header has its value's length. In the newer one it has the offset of
its name from the first name: a reader that knows the schema, which fixes the names' positions, reads one property
without the others. A schema id is twice a number, plus 1 if the sender reuses the number; number 0 is no schema, so
that schema id 1 is the newer encoding without a schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from formats.bmq.codes import (
    PROPERTIES_MAX,
    PROPERTIES_SIZE_MAX,
    PROPERTY_NAME_SIZE_MAX,
    PROPERTY_VALUE_SIZE_MAX,
    PropertyType,
)
from formats.bmq.padding import WORD, padding, unpadded_end
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, u8

__all__ = [
    "PROPERTIES_HEADER",
    "PROPERTY_HEADER",
    "AreaPlan",
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
    """The header of a properties area. `area_words` counts the whole area; the sizes of headers are halved.

    bmqp::MessagePropertiesHeader, 6 bytes:

        0 | reserved_bits 2 | property_header_size_2x 3 | header_size_2x 3 | area_words 24 |
        4 | reserved 8 | num_properties 8                                                  |
    """

    reserved_bits: Annotated[int, bits(2, word=32), "Reserved; written as zero."]
    property_header_size_2x: Annotated[int, bits(3), "Size of each property's header, halved: 3."]
    header_size_2x: Annotated[int, bits(3), "Size of this header, halved: 3."]
    area_words: Annotated[int, bits(24), "Words of the whole area: headers, names, values and padding."]
    reserved: Annotated[int, u8, "Reserved; written as zero."]
    num_properties: Annotated[int, u8, "How many properties follow."]


class MessagePropertyHeader(NamedTuple):
    """One for every property; `value_length` is an offset in the newer encoding.

    bmqp::MessagePropertyHeader, 6 bytes:

        0 | reserved_bit 1 | type 5 | value_length 26 |
        4 | reserved_bits 4 | name_length 12          |
    """

    reserved_bit: Annotated[int, bits(1), "Reserved; written as zero."]
    type: Annotated[int, bits(5), "A PropertyType."]
    value_length: Annotated[
        int, bits(26), "Older encoding: bytes of the value. Newer: offset of the name from the first name."
    ]
    reserved_bits: Annotated[int, bits(4), "Reserved; written as zero."]
    name_length: Annotated[int, bits(12), "Bytes of the name."]


PROPERTIES_HEADER = Layout(MessagePropertiesHeader, size=6, upstream="bmqp::MessagePropertiesHeader")
PROPERTY_HEADER = Layout(MessagePropertyHeader, size=6, upstream="bmqp::MessagePropertyHeader")

_NUMBERS = {
    PropertyType.BOOL: struct.Struct(">?"),
    PropertyType.SHORT: struct.Struct(">h"),
    PropertyType.INT32: struct.Struct(">i"),
    PropertyType.INT64: struct.Struct(">q"),
}
_PATH = "MessageProperties"

_LENGTH = (1 << 26) - 1
_TYPE_SHIFT = 26
# The sizes of both headers, at their place in the first word of a MessagePropertiesHeader.
_SIZES_WORD = PROPERTY_HEADER.size // 2 << 27 | PROPERTIES_HEADER.size // 2 << 24
_header = PROPERTIES_HEADER.words.unpack_from
_property_header = PROPERTY_HEADER.words.unpack_from
_new = tuple.__new__


class Property(NamedTuple):
    """A property. The Python type of `value` depends on `type`:

    BOOL bool; SHORT, INT32 and INT64 int; CHAR one byte; STRING str; BINARY bytes. Names and strings are UTF-8; other
    bytes become surrogates (`surrogateescape`), and survive a round trip.
    """

    name: str
    type: PropertyType
    value: PropertyValue


def _read_number(kind: PropertyType) -> Callable[[Buffer], PropertyValue]:
    unpack = _NUMBERS[kind].unpack
    return lambda raw: unpack(raw)[0]


# By a type's number, which begins at 1: the type, the size of its values if fixed, and their decoder.
_TYPES = (PropertyType.BOOL, *PropertyType)
_SIZES = (0, 1, 1, 2, 4, 8, 0, 0)
_READ: tuple[Callable[[Buffer], PropertyValue], ...] = (
    bytes,
    # Like the reference: 1 is true, any other byte false.
    lambda raw: raw[0] == 1,
    bytes,
    _read_number(PropertyType.SHORT),
    _read_number(PropertyType.INT32),
    _read_number(PropertyType.INT64),
    lambda raw: str(raw, "utf-8", "surrogateescape"),
    bytes,
)


def properties_size(data: Buffer) -> int:
    """The size in bytes of the properties' area at the start of a message's data; FormatError if it does not fit."""
    header = PROPERTIES_HEADER.unpack(data)
    size = header.area_words * WORD
    if not PROPERTIES_HEADER.size < size <= len(data):
        raise FormatError(f"{_PATH}Header.area_words", 0, f"{header.area_words}, in {len(data)} bytes of data")
    return size


def decode_properties(data: Buffer, schema_id: int) -> list[Property]:
    """Decode the properties at the start of a message's data, in order; the payload is ignored.

    FormatError unless every length, type and name is sound and names are distinct.
    """
    out: list[Property] = []
    names: set[str] = set()
    for kind, start, value, end in _spans(data, schema_id):
        name = str(data[start:value], "utf-8", "surrogateescape")
        if name in names:
            raise FormatError(_path(name), start, "comes a second time")
        names.add(name)
        if not 1 <= kind < len(_TYPES):
            raise FormatError(_path(name), start, f"{kind} is no property type")
        property_type = _TYPES[kind]
        size = _SIZES[kind]
        if size and end - value != size:
            raise FormatError(_path(name), value, f"a value of {end - value} bytes is no {property_type.name}")
        out.append(_new(Property, (name, property_type, _READ[kind](data[value:end]))))
    return out


def _path(name: str) -> str:
    return f"{_PATH}.{name!r:.40}"


def _spans(data: Buffer, schema_id: int) -> list[tuple[int, int, int, int]]:
    """List each property's type, the starts of its name and value, and the end of its value."""
    size = properties_size(data)
    sizes, _, count = _header(data)
    first = (sizes >> 24 & 7) * 2
    step = (sizes >> 27 & 7) * 2
    content = first + count * step
    end = unpadded_end(data, 0, size, f"{_PATH}.padding")
    if first < PROPERTIES_HEADER.size or step < PROPERTY_HEADER.size or not count or content > end:
        reason = f"{count} properties, headers of {first} and {step} bytes, in an area of {size}"
        raise FormatError(f"{_PATH}Header", 0, reason)
    spans: list[tuple[int, int, int, int]] = []
    heads = [_property_header(data, at) for at in range(first, content, step)]
    start = content
    for index, (word, name_word) in enumerate(heads):
        value = start + (name_word & 0xFFF)
        if not schema_id:
            stop = value + (word & _LENGTH)
        elif index + 1 < count:
            stop = content + (heads[index + 1][0] & _LENGTH)
        else:
            stop = end
        if not value <= stop <= end or (schema_id and not index and word & _LENGTH):
            raise FormatError(f"{_PATH}Header", first + index * step, "names and values overlap or leave gaps")
        spans.append((word >> 26 & 0x1F, start, value, stop))
        start = stop
    if start != end:
        raise FormatError(f"{_PATH}Header", 0, f"names and values end at {start}, not at {end}")
    return spans


def encode_properties(properties: Iterable[Property], schema_id: int) -> bytes:
    """Encode properties as an area with padding, sorted by name like the reference's.

    ValueError for no properties, more than 255, a repeated name, or a value that does not fit its type.
    """
    parts = sorted((_encoded(each.name), each.type, _value_bytes(each)) for each in properties)
    if not 1 <= len(parts) <= PROPERTIES_MAX or len({name for name, _, _ in parts}) != len(parts):
        raise ValueError(f"{len(parts)} properties: their names must differ, and be 1..{PROPERTIES_MAX}")
    # The words of a MessagePropertiesHeader; the first is filled in at the end.
    heads = [0, 0, len(parts)]
    content: list[bytes] = []
    offset = 0
    for name, kind, value in parts:
        if len(name) > PROPERTY_NAME_SIZE_MAX or len(value) > PROPERTY_VALUE_SIZE_MAX:
            raise ValueError(f"property {name[:40]!r}: a name of {len(name)} bytes, a value of {len(value)}: too long")
        # The words of a MessagePropertyHeader.
        heads += (kind << _TYPE_SHIFT | (offset if schema_id else len(value)), len(name))
        content += (name, value)
        offset += len(name) + len(value)
    size = PROPERTIES_HEADER.size + len(parts) * PROPERTY_HEADER.size + offset
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(f"properties of {size} bytes: the limit is {PROPERTIES_SIZE_MAX}")
    tail = padding(size)
    heads[0] = _SIZES_WORD | (size + len(tail)) // WORD
    return b"".join((_heads(len(parts)).pack(*heads), *content, tail))


class AreaPlan:
    """The area of messages whose properties have the same names and types, in the newer encoding.

    The results equal those of `encode_properties`; `names` are in the area's order.
    """

    def __init__(self, properties: Sequence[tuple[str, PropertyType]]) -> None:
        """Raises `ValueError` for no properties, more than 255, or a name that is repeated or too long."""
        rows = sorted((_encoded(name), name, kind) for name, kind in properties)
        if not 1 <= len(rows) <= PROPERTIES_MAX or len({name for name, _, _ in rows}) != len(rows):
            raise ValueError(f"{len(rows)} properties: their names must differ, and be 1..{PROPERTIES_MAX}")
        if any(len(encoded) > PROPERTY_NAME_SIZE_MAX for encoded, _, _ in rows):
            raise ValueError(f"a name of a property is longer than {PROPERTY_NAME_SIZE_MAX} bytes")
        self.names = [name for _, name, _ in rows]
        self._rows = [(encoded, kind << _TYPE_SHIFT, len(encoded)) for encoded, _, kind in rows]
        self._heads = _heads(len(rows))
        self._fixed = PROPERTIES_HEADER.size + len(rows) * PROPERTY_HEADER.size

    def encode(self, values: Iterable[bytes]) -> bytes:
        """Encode the area of `values`, each encoded as its type. Raises `ValueError` if it is too large."""
        heads = [0, 0, len(self._rows)]
        content: list[bytes] = []
        offset = 0
        for (name, kind, name_size), value in zip(self._rows, values, strict=True):
            heads += (kind | offset, name_size)
            content += (name, value)
            offset += name_size + len(value)
        size = self._fixed + offset
        if size > PROPERTIES_SIZE_MAX:
            raise ValueError(f"properties of {size} bytes: the limit is {PROPERTIES_SIZE_MAX}")
        tail = padding(size)
        heads[0] = _SIZES_WORD | (size + len(tail)) // WORD
        return b"".join((self._heads.pack(*heads), *content, tail))


@cache
def _heads(count: int) -> struct.Struct:
    """The `struct` of the area's header and `count` property headers; the cache holds every count."""
    return struct.Struct(f">IBB{'IH' * count}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _value_bytes(item: Property) -> bytes:
    _, kind, value = item
    if kind is PropertyType.STRING and type(value) is str:
        return value.encode("utf-8", "surrogateescape")
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
    """Convert the area at the start of `data` from the newer encoding to the older one, which has the same size.

    For clients that do not know the newer one (source: bmqp::ProtocolUtil::convertToOld).
    """
    out = bytearray(data[: properties_size(data)])
    header = PROPERTIES_HEADER.unpack(out)
    at = header.header_size_2x * 2
    for _, _, value, end in _spans(data, 1):
        head = PROPERTY_HEADER.unpack(out, at)
        PROPERTY_HEADER.pack_into(out, at, head._replace(value_length=end - value))
        at += header.property_header_size_2x * 2
    return bytes(out)
