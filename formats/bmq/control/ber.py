"""BER codec for schema messages, byte for byte as BDE's `balber::BerEncoder` writes them with default options.

A message is a SEQUENCE of indefinite length; so are its nested messages, arrays and choices, under the schema's
context-specific tags. Every element with a value is written, defaults and empty arrays included; only an optional
element that is None is omitted. Array elements carry the universal SEQUENCE tag. Integers are minimal two's complement
(an unsigned one whose top bit is set is preceded by a zero byte), enumerations are integers, text is UTF-8, and
primitive lengths take the shortest form.

    30 80                        OpenQueue request in a ControlMessage
       80 01 02                  rId = 2
       a1 80                     the anonymous choice, element 1
          aa 80                  alternative 10, openQueue
             a0 80 ... 00 00     handleParameters
          00 00
       00 00
    00 00

The decoder also accepts definite lengths, skips elements with an unknown tag, and rejects everything that the reference
rejects: wrong classes and forms, integers too wide for their type, unknown enumerators. Unlike the reference, it also
rejects text that is not UTF-8, integers without a byte, choices without an alternative of this schema, and nesting
beyond `MAX_DEPTH`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from formats.bmq.control.schema import (
    Boolean,
    Choice,
    Description,
    Element,
    Enumeration,
    Integer,
    Kind,
    Octets,
    Text,
    describe,
)
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["MAX_DEPTH", "decode", "decode_from", "encode"]

T = TypeVar("T")

# Twice the depth of the schema and more; only skipped elements can be deeper. The reference's limit is 512.
MAX_DEPTH: Final = 32

_CONSTRUCTED: Final = 0x20
_CONTEXT: Final = 0x80
_SEQUENCE: Final = 0x30
_FORM_AND_CLASS: Final = 0xE0
_TAG_NUMBER: Final = 0x1F
_OPEN_ENDED: Final = 0x80
_INDEFINITE: Final = -1
_MAX_LENGTH_OCTETS: Final = 4
_END: Final = b"\x00\x00"
_INT: Final = Integer(4, True, -(1 << 31), (1 << 31) - 1)


def encode(value: object) -> bytes:
    """Encode a message. `OverflowError` if an integer does not fit its element."""
    out = bytearray((_SEQUENCE, _OPEN_ENDED))
    _put_elements(out, describe(type(value)), value)
    out += _END
    return bytes(out)


def _put_elements(out: bytearray, description: Description, value: object) -> None:
    for element in description.elements:
        item = getattr(value, element.attribute)
        if item is None and element.optional:
            continue
        if element.array:
            assert isinstance(element.kind, Description)
            out += bytes((_CONTEXT | _CONSTRUCTED | element.tag, _OPEN_ENDED))
            for entry in item:
                out += bytes((_SEQUENCE, _OPEN_ENDED))
                _put_elements(out, element.kind, entry)
                out += _END
            out += _END
        else:
            _put_value(out, element, item)


def _put_value(out: bytearray, element: Element, item: Any) -> None:
    kind = element.kind
    if isinstance(kind, (Description, Choice)):
        out += bytes((_CONTEXT | _CONSTRUCTED | element.tag, _OPEN_ENDED))
        if isinstance(kind, Choice):
            chosen = kind.by_class[type(item)]
            out += bytes((_CONTEXT | _CONSTRUCTED | chosen.tag, _OPEN_ENDED))
            _put_elements(out, chosen.description, item)
            out += _END
        else:
            _put_elements(out, kind, item)
        out += _END
        return
    contents = _contents(kind, item, element.name)
    out.append(_CONTEXT | element.tag)
    size = len(contents)
    if size < _OPEN_ENDED:
        out.append(size)
    else:
        octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
        out.append(_OPEN_ENDED | len(octets))
        out += octets
    out += contents


def _contents(kind: Kind, item: Any, name: str) -> bytes:
    if isinstance(kind, Text):
        encoded: bytes = item.encode()
        return encoded
    if isinstance(kind, Octets):
        return bytes(item)
    if isinstance(kind, Boolean):
        return b"\x01" if item else b"\x00"
    number = int(item)
    if isinstance(kind, Integer) and not kind.low <= number <= kind.high:
        raise OverflowError(f"{name} = {number} does not fit {kind.low}..{kind.high}")
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def decode(cls: type[T], data: Buffer) -> T:
    """Decode the message of type `cls` at the start of `data`; later bytes (an event's padding) are ignored.

    `FormatError` names the element (`ControlMessage.openQueue.handleParameters.uri`).
    """
    return decode_from(cls, data, 0)[0]


def decode_from(cls: type[T], data: Buffer, offset: int) -> tuple[T, int]:
    """Decode the message at `offset` like `decode`; return it and the offset after it."""
    description = describe(cls)
    try:
        identifier, _, length, at = _header(data, offset, len(data))
        if identifier != _SEQUENCE:
            raise FormatError("", offset, f"expected a SEQUENCE (0x30), found 0x{identifier:02x}")
        value, end = _sequence(data, at, *_bounds(length, at, len(data)), description, 1)
    except FormatError as fault:
        raise FormatError(description.name + fault.path, fault.offset, fault.reason) from None
    assert isinstance(value, cls)
    return value, end


def _bounds(length: int, at: int, end: int) -> tuple[int, bool]:
    """Return the greatest possible end of the contents, and True if a mark ends them."""
    return (end, True) if length == _INDEFINITE else (at + length, False)


def _header(data: Buffer, at: int, end: int) -> tuple[int, int, int, int]:
    """Read a header: first identifier byte, tag number, length or `_INDEFINITE`, and the offset of the contents."""
    start = at
    if end - at < 2:
        raise FormatError("", at, "ends inside an element")
    identifier = data[at]
    number = identifier & _TAG_NUMBER
    at += 1
    if number == _TAG_NUMBER:
        number = 0
        while True:
            # The reference reads tag numbers into an int.
            if at >= end or number > 0xFFFFFF:
                raise FormatError("", start, "tag number does not end")
            octet = data[at]
            at += 1
            number = number << 7 | octet & 0x7F
            if not octet & 0x80:
                break
        if at >= end:
            raise FormatError("", at, "ends inside an element")
    length = data[at]
    at += 1
    if length == _OPEN_ENDED:
        return identifier, number, _INDEFINITE, at
    if length > _OPEN_ENDED:
        octets = length & 0x7F
        if octets > _MAX_LENGTH_OCTETS or octets > end - at:
            raise FormatError("", at, f"length in {octets} bytes")
        length = int.from_bytes(data[at : at + octets], "big")
        at += octets
    if length > end - at:
        raise FormatError("", start, f"needs {length} bytes, {end - at} left")
    return identifier, number, length, at


def _ended(data: Buffer, at: int, end: int, open_ended: bool) -> bool:
    if open_ended:
        return data[at : at + 2] == _END and at + 2 <= end
    return at == end


def _sequence(
    data: Buffer, at: int, end: int, open_ended: bool, description: Description, depth: int
) -> tuple[Any, int]:
    values: dict[str, Any] = {}
    by_tag = description.by_tag
    while not _ended(data, at, end, open_ended):
        start = at
        identifier, number, length, at = _header(data, at, end)
        element = by_tag.get(number)
        try:
            if identifier & 0xC0 != _CONTEXT:
                raise FormatError("", start, f"expected a context-specific tag, found 0x{identifier:02x}")
            if element is None:
                at = _skip(data, at, end, identifier, length, depth + 1)
            else:
                values[element.attribute], at = _value(data, start, at, end, identifier, length, element, depth)
        except FormatError as fault:
            name = f"[{number}]" if element is None else element.name
            raise FormatError(f".{name}{fault.path}", fault.offset, fault.reason) from None
    for element in description.elements:
        if element.attribute not in values:
            try:
                values[element.attribute] = element.absent()
            except LookupError as missing:
                raise FormatError(f".{missing.args[0]}", at, "no alternative is selected") from None
    return description.cls(**values), at + 2 * open_ended


def _value(
    data: Buffer, start: int, at: int, end: int, identifier: int, length: int, element: Element, depth: int
) -> tuple[Any, int]:
    kind = element.kind
    if isinstance(kind, (Description, Choice)):
        if not identifier & _CONSTRUCTED:
            raise FormatError("", start, "is primitive, must be constructed")
        if depth >= MAX_DEPTH:
            raise FormatError("", start, f"nested deeper than {MAX_DEPTH}")
        limit, open_ended = _bounds(length, at, end)
        if element.array:
            assert isinstance(kind, Description)
            return _array(data, at, limit, open_ended, kind, depth + 1)
        if isinstance(kind, Choice):
            return _alternative(data, at, limit, open_ended, kind, depth + 1)
        return _sequence(data, at, limit, open_ended, kind, depth + 1)
    if identifier & _CONSTRUCTED or length == _INDEFINITE:
        raise FormatError("", start, "is constructed, must be primitive")
    return _scalar(data[at : at + length], kind, at), at + length


def _array(data: Buffer, at: int, end: int, open_ended: bool, description: Description, depth: int) -> tuple[Any, int]:
    entries: list[Any] = []
    while not _ended(data, at, end, open_ended):
        start = at
        try:
            identifier, _, length, at = _header(data, at, end)
            if identifier != _SEQUENCE:
                raise FormatError("", start, f"expected a SEQUENCE (0x30), found 0x{identifier:02x}")
            entry, at = _sequence(data, at, *_bounds(length, at, end), description, depth + 1)
        except FormatError as fault:
            raise FormatError(f"[{len(entries)}]{fault.path}", fault.offset, fault.reason) from None
        entries.append(entry)
    return tuple(entries), at + 2 * open_ended


def _alternative(data: Buffer, at: int, end: int, open_ended: bool, choice: Choice, depth: int) -> tuple[Any, int]:
    if _ended(data, at, end, open_ended):
        raise FormatError("", at, "no alternative is selected")
    start = at
    identifier, number, length, at = _header(data, at, end)
    chosen = choice.by_tag.get(number)
    if identifier & _FORM_AND_CLASS != _CONTEXT | _CONSTRUCTED or chosen is None:
        raise FormatError("", start, f"unknown alternative {number} (0x{identifier:02x})")
    try:
        value, at = _sequence(data, at, *_bounds(length, at, end), chosen.description, depth + 1)
    except FormatError as fault:
        raise FormatError(f".{chosen.name}{fault.path}", fault.offset, fault.reason) from None
    if not _ended(data, at, end, open_ended):
        raise FormatError("", at, "more than one alternative")
    return value, at + 2 * open_ended


def _scalar(contents: Buffer, kind: Kind, at: int) -> Any:
    if isinstance(kind, Text):
        try:
            return str(contents, "utf-8")
        except UnicodeDecodeError as fault:
            raise FormatError("", at + fault.start, "is not UTF-8") from None
    if isinstance(kind, Octets):
        return bytes(contents)
    if isinstance(kind, Boolean):
        if len(contents) != 1:
            raise FormatError("", at, f"a boolean of {len(contents)} bytes")
        return contents[0] != 0
    if isinstance(kind, Enumeration):
        number = _integer(contents, _INT, at)
        try:
            return kind.cls(number)
        except ValueError:
            raise FormatError("", at, f"{kind.cls.__name__} has no value {number}") from None
    assert isinstance(kind, Integer)
    return _integer(contents, kind, at)


def _integer(contents: Buffer, kind: Integer, at: int) -> int:
    size = len(contents)
    if not kind.signed and size == kind.size + 1 and contents[0] == 0:
        return int.from_bytes(contents, "big")
    if not 1 <= size <= kind.size:
        raise FormatError("", at, f"an integer of {size} bytes, expected 1 to {kind.size}")
    number = int.from_bytes(contents, "big", signed=True)
    # Like the reference: peers may write unsigned integers with all of their bytes, sign-extended.
    return number if kind.signed else number & kind.high


def _skip(data: Buffer, at: int, end: int, identifier: int, length: int, depth: int) -> int:
    if length != _INDEFINITE:
        return at + length
    if not identifier & _CONSTRUCTED:
        raise FormatError("", at, "a primitive of indefinite length")
    if depth > MAX_DEPTH:
        raise FormatError("", at, f"nested deeper than {MAX_DEPTH}")
    while not _ended(data, at, end, True):
        identifier, _, length, at = _header(data, at, end)
        at = _skip(data, at, end, identifier, length, depth + 1)
    return at + 2
