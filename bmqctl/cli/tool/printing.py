"""Formats of the reference's tool: one line of names and values in brackets, hex dumps, rounded quantities.

Source: `bslim::Printer` as `operator<<` of the reference's types uses it, `bmqu::BlobStartHexDumper`,
`bmqu::PrintUtil`. Scripts match these lines, so every space is as in the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from formats.bmq.wire.properties import Property, PropertyType

__all__ = [
    "Plain",
    "ascii_dump",
    "attributes",
    "correlation",
    "hex_dump",
    "hex_dump_start",
    "pretty_bytes",
    "pretty_interval",
    "pretty_number",
    "print_properties",
    "queue_id",
]

HEX_LINE = 16
DUMP_MAX = 256


class Plain(str):
    """Text printed without quotes: an enumerator, a URI, or text that is already formatted."""

    __slots__ = ()


def attributes(pairs: Iterable[tuple[str, Any]]) -> Plain:
    """Format pairs as `[ name = value name = value ]`."""
    return Plain("".join(("[", *(f" {name} = {_value(value)}" for name, value in pairs), " ]")))


def _value(value: Any) -> str:
    if isinstance(value, Plain):
        return value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "".join(("[", *(f" {_value(each)}" for each in value), " ]"))
    return str(value)


def correlation(number: int | None, kind: str = "autoValue") -> Plain:
    """Format a correlation id, or none; `kind` is autoValue or numeric."""
    return Plain('[ "* unset *" ]') if number is None else Plain(f"[ {kind} = {number} ]")


def queue_id(uri: str, number: int | None) -> Plain:
    return attributes([("uri", Plain(uri)), ("correlationId", correlation(number))])


def print_properties(properties: Sequence[Property]) -> Plain:
    return attributes((f"{name} ({kind.name})", _property(kind, value)) for name, kind, value in properties)


def _property(kind: PropertyType, value: Any) -> Any:
    if kind is PropertyType.BINARY:
        return bytes(value)[:DUMP_MAX].hex().upper()
    if kind is PropertyType.CHAR:
        return Plain(f"{value[0]:x}")
    return value


def hex_dump(data: bytes) -> str:
    """Format bytes in lines of 16: offset, four blocks of four bytes, and the bytes as ASCII."""
    lines = []
    for offset in range(0, len(data), HEX_LINE):
        row = data[offset : offset + HEX_LINE]
        blocks = " ".join(row[at : at + 4].hex().upper() for at in range(0, len(row), 4))
        lines.append(f"{offset:6d}:   {blocks:<35}     |{ascii_dump(row):<16}|\n")
    return "".join(lines)


def hex_dump_start(data: bytes) -> str:
    """Format the first 256 bytes, and the number of the remaining ones."""
    if len(data) <= DUMP_MAX:
        return hex_dump(data)
    return f"{hex_dump(data[:DUMP_MAX])}\t+ {len(data) - DUMP_MAX} more bytes. ({len(data)} total)"


def ascii_dump(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def pretty_number(value: int) -> str:
    return f"{value:,}"


def pretty_bytes(value: int) -> str:
    """Format a size in the largest unit that leaves a whole number, with two decimals."""
    sign, size = ("-", -value) if value < 0 else ("", value)
    units = (" B", "KB", "MB", "GB", "TB", "PB")
    unit = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    if unit == 0:
        return f"{sign}{size} {units[0]}"
    hundredths = (size * 1000 // (1 << unit * 10) + 5) // 10
    return f"{sign}{hundredths // 100}.{hundredths % 100:02d} {units[unit]}"


def pretty_interval(nanoseconds: int) -> str:
    """Format a duration in the largest unit that leaves a whole number, with two decimals."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    divisor = 1
    unit = "ns"
    for size, larger in ((1000, "us"), (1000, "ms"), (1000, "s"), (60, "m"), (60, "h"), (24, "d"), (7, "w")):
        if left < divisor * size:
            break
        divisor *= size
        unit = larger
    if divisor == 1:
        return f"{sign}{left} {unit}"
    hundredths = round(left % divisor / divisor * 100)
    return f"{sign}{left // divisor}.{hundredths:02d} {unit}"
