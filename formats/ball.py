"""BDE's format language for log lines (source: ball::RecordStringFormatter).

    %d  date and time, milliseconds (05NOV2025_16:20:01.123)   %t  thread, decimal   %f  file, with its path
    %D  the same with microseconds                             %T  thread, hex       %F  file, name only
    %i  date and time as in ISO 8601, seconds                  %p  process           %l  line
    %I  the same with milliseconds                             %s  severity          %m  message
    %O  the same with microseconds                             %c  category          %u %a  fields without a value
    %%  a percent sign      \\n \\t \\\\  newline, tab, backslash
    %x  message, with other bytes than printable ASCII in hex, as in \\x0A           %X  the whole message in hex

All times are UTC, as in the reference; ISO 8601 ones end in Z. Other specifiers and escapes stay as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

__all__ = ["Record", "compile_format"]

_ITEM = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class Record(NamedTuple):
    """An entry; `time` is UTC, and `line` is its line in `file`."""

    time: datetime
    process: int
    thread: int
    severity: str
    category: str
    file: str
    line: int
    message: str


def _date_time(time: datetime) -> str:
    return f"{time.day:02}{_MONTHS[time.month - 1]}{time:%Y_%H:%M:%S}"


def _bytes(message: str) -> bytes:
    return message.encode(errors="surrogateescape")


_FIELDS: dict[str, Callable[[Record], str]] = {
    "d": lambda record: f"{_date_time(record.time)}.{record.time.microsecond // 1000:03}",
    "D": lambda record: f"{_date_time(record.time)}.{record.time.microsecond:06}",
    "i": lambda record: f"{record.time.isoformat(timespec='seconds')[:19]}Z",
    "I": lambda record: f"{record.time.isoformat(timespec='milliseconds')[:23]}Z",
    "O": lambda record: f"{record.time.isoformat(timespec='microseconds')[:26]}Z",
    "p": lambda record: str(record.process),
    "t": lambda record: str(record.thread),
    "T": lambda record: f"{record.thread:X}",
    "s": lambda record: record.severity,
    "f": lambda record: record.file,
    "F": lambda record: record.file.rpartition("/")[2],
    "l": lambda record: str(record.line),
    "c": lambda record: record.category,
    "m": lambda record: record.message,
    "x": lambda record: "".join(chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02X}" for b in _bytes(record.message)),
    "X": lambda record: _bytes(record.message).hex().upper(),
    "u": lambda record: "",
    "a": lambda record: "",
    "%": lambda record: "%",
}


def compile_format(spec: str) -> Callable[[Record], str]:
    """Return a function that formats a record as `spec` says, line ends included."""
    pieces: list[str | Callable[[Record], str]] = []
    at = 0
    for item in _ITEM.finditer(spec):
        pieces.append(spec[at : item.start()])
        specifier, escape = item.groups()
        if escape is not None:
            pieces.append(_ESCAPES.get(escape, item.group()))
        else:
            pieces.append(_FIELDS.get(specifier, item.group()))
        at = item.end()
    pieces.append(spec[at:])
    return lambda record: "".join([piece if isinstance(piece, str) else piece(record) for piece in pieces])
