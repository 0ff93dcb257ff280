"""The tool's console: records in the reference's format language, to standard output.

Source: `ball::RecordStringFormatter`, `bmqtsk::ConsoleObserver`. Supported specifiers are: %d %D %i %I %O
(times, UTC), %p (process), %t %T (thread), %s (severity), %f %F %l (source), %c (category), %m (message), %% and the
escapes \\n \\t \\\\; %u, %x, %X and %a are for attributes that these records lack.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["DEFAULT_FORMAT", "Log", "Record", "Severity", "compile_format"]

DEFAULT_FORMAT = r"%d (%t) %s %F:%l %m\n"
_ITEM = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_COLOR = {"WARN": "\033[1;33m", "ERROR": "\033[1;31m"}
_COLOR_RESET = "\033[0m"


class Severity(IntEnum):
    """Severity of a record, the most severe first."""

    OFF = 0
    FATAL = 32
    ERROR = 64
    WARN = 96
    INFO = 128
    DEBUG = 160
    TRACE = 192


class Record(NamedTuple):
    """One entry; `line` is the line in `file` where it was made."""

    time: datetime
    severity: Severity
    category: str
    file: str
    line: int
    message: str


_FIELDS: dict[str, Callable[[Record], str]] = {
    "d": lambda r: f"{r.time:%d%b%Y_%H:%M:%S}.{r.time.microsecond // 1000:03d}",
    "D": lambda r: f"{r.time:%d%b%Y_%H:%M:%S}.{r.time.microsecond:06d}",
    "i": lambda r: f"{r.time:%Y-%m-%dT%H:%M:%S}Z",
    "I": lambda r: f"{r.time:%Y-%m-%dT%H:%M:%S}.{r.time.microsecond // 1000:03d}Z",
    "O": lambda r: f"{r.time:%Y-%m-%dT%H:%M:%S}.{r.time.microsecond:06d}Z",
    "p": lambda r: str(os.getpid()),
    "t": lambda r: str(threading.get_ident()),
    "T": lambda r: f"{threading.get_ident():X}",
    "s": lambda r: r.severity.name,
    "f": lambda r: r.file,
    "F": lambda r: Path(r.file).name,
    "l": lambda r: str(r.line),
    "c": lambda r: r.category,
    "m": lambda r: r.message,
    "u": lambda r: "",
    "x": lambda r: "",
    "X": lambda r: "",
    "a": lambda r: "",
    "%": lambda r: "%",
}


def compile_format(text: str) -> Callable[[Record], str]:
    """Return a function that formats a record according to `text`."""
    parts: list[str | Callable[[Record], str]] = []
    at = 0
    for item in _ITEM.finditer(text):
        parts.append(text[at : item.start()])
        specifier, escape = item.groups()
        if escape is not None:
            parts.append(_ESCAPES.get(escape, item.group()))
        else:
            parts.append(_FIELDS.get(specifier, item.group()))
        at = item.end()
    parts.append(text[at:])
    return lambda record: "".join(part if isinstance(part, str) else part(record) for part in parts)


class Log:
    """Writes records up to `threshold`, without buffering."""

    def __init__(
        self, text: str = DEFAULT_FORMAT, threshold: Severity = Severity.INFO, out: IO[str] | None = None
    ) -> None:
        self._format = compile_format(text or DEFAULT_FORMAT)
        self._threshold = threshold
        self._out = out or sys.stdout
        self._colors = self._out.isatty()

    def write(self, severity: Severity, category: str, message: str, depth: int = 1) -> None:
        """Write a record; its source is the caller `depth` frames up."""
        if severity > self._threshold:
            return
        caller = sys._getframe(depth)
        record = Record(datetime.now(UTC), severity, category, caller.f_code.co_filename, caller.f_lineno, message)
        text = self._format(record)
        if self._colors and severity.name in _COLOR:
            text = f"{_COLOR[severity.name]}{text}{_COLOR_RESET}"
        self.print(text)

    def print(self, text: str) -> None:
        """Print text that is not a record."""
        self._out.write(text)
        self._out.flush()
