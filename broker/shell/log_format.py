"""The reference's language for the form of a log line (source: ball::RecordStringFormatter).

    %d  date and time, milliseconds (05NOV2025_16:20:01.123)   %t  thread, decimal   %f  file, with its path
    %D  the same with microseconds                             %T  thread, hex       %F  file, name only
    %i  date and time as in ISO 8601, seconds                  %p  process           %l  line
    %I  the same with milliseconds                             %s  severity          %m  message
    %O  the same with microseconds                             %c  category          %u %a  fields that are not here
    %%  a percent sign      \\n \\t \\\\  newline, tab, backslash

All times are UTC, whatever the time zone of the process, as in the reference; those of ISO 8601 end in a Z.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

__all__ = ["DEFAULT_FORMAT", "LEVELS", "LineFormatter", "severity_name"]

# The reference's severities (ball::Severity) and their numbers here.
LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}

DEFAULT_FORMAT = "%I %s %c %m\\n"

# Of a longer line the rest is left out; answers to an operator, which have many, are shown whole.
LINE_CHARACTERS_MAX = 16 << 10
# The innermost frames of a traceback.
FRAMES_MAX = 30

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def severity_name(level: int) -> str:
    """The reference's word for a severity: that of the nearest one at or below `level`."""
    return next((name for name, at_least in LEVELS.items() if level >= at_least), "TRACE")


def _ball_time(record: logging.LogRecord) -> str:
    t = time.gmtime(record.created)
    return f"{t.tm_mday:02}{_MONTHS[t.tm_mon - 1]}{t.tm_year}_{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"


def _iso_time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))


def _micros(record: logging.LogRecord) -> int:
    return int(record.created % 1 * 1_000_000)


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    lines = text.split("\n") if getattr(record, "multiline", False) else [_bounded(text)]
    if record.exc_info:
        trace = "".join(traceback.format_exception(*record.exc_info, limit=-FRAMES_MAX))
        lines += map(_bounded, trace.rstrip().split("\n"))
    return "\n".join(map(_printable, lines))


def _bounded(text: str) -> str:
    """A line without what it has beyond the bound: names that peers give themselves may be in it."""
    beyond = len(text) - LINE_CHARACTERS_MAX
    return text if beyond <= 0 else f"{text[:LINE_CHARACTERS_MAX]}... ({beyond} characters more)"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_Field = Callable[[logging.LogRecord], str]

_FIELDS: dict[str, _Field] = {
    "d": lambda record: f"{_ball_time(record)}.{_micros(record) // 1000:03}",
    "D": lambda record: f"{_ball_time(record)}.{_micros(record):06}",
    "i": lambda record: f"{_iso_time(record)}Z",
    "I": lambda record: f"{_iso_time(record)}.{_micros(record) // 1000:03}Z",
    "O": lambda record: f"{_iso_time(record)}.{_micros(record):06}Z",
    "p": lambda record: str(record.process),
    "t": lambda record: str(record.thread),
    "T": lambda record: f"{record.thread or 0:X}",
    "s": lambda record: severity_name(record.levelno),
    "f": lambda record: record.pathname,
    "F": lambda record: record.filename,
    "l": lambda record: str(record.lineno),
    "c": lambda record: record.name,
    "u": lambda record: "",
    "a": lambda record: "",
    "%": lambda record: "%",
    "m": _message,
}


class LineFormatter(logging.Formatter):
    """Records in the form that `spec` gives, line ends included; unknown fields stay as they are written.

    What peers send stands in messages: nothing in it may begin a line of its own, or speak to the terminal. A record
    made with `extra={"multiline": True}` keeps its line breaks; whoever makes it answers for what its lines hold.
    """

    def __init__(self, spec: str) -> None:
        super().__init__()
        self._pieces = _compile(spec)

    def format(self, record: logging.LogRecord) -> str:
        return "".join([piece if isinstance(piece, str) else piece(record) for piece in self._pieces])


def _compile(spec: str) -> list[str | _Field]:
    pieces: list[str | _Field] = []
    at = 0
    while at < len(spec):
        two = spec[at : at + 2]
        if len(two) == 2 and two[0] == "%" and (field := _FIELDS.get(two[1])):
            pieces.append(field)
        elif len(two) == 2 and two[0] == "\\" and two[1] in _ESCAPES:
            pieces.append(_ESCAPES[two[1]])
        else:
            pieces.append(spec[at])
            at += 1
            continue
        at += 2
    return pieces
