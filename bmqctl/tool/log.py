"""The tool's console: records in the reference's format language, to standard output.

Source: `bmqtsk::ConsoleObserver`; the language is `formats.ball`.
"""

from __future__ import annotations

import os
import sys
import threading
from datetime import UTC, datetime
from enum import IntEnum
from typing import IO

from formats.ball import Record, compile_format

__all__ = ["DEFAULT_FORMAT", "Log", "Severity", "make_record"]

DEFAULT_FORMAT = r"%d (%t) %s %F:%l %m\n"
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


def make_record(severity: Severity, category: str, file: str, line: int, message: str) -> Record:
    """Make a record of this moment, process and thread."""
    return Record(datetime.now(UTC), os.getpid(), threading.get_ident(), severity.name, category, file, line, message)


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
        text = self._format(make_record(severity, category, caller.f_code.co_filename, caller.f_lineno, message))
        if self._colors and severity.name in _COLOR:
            text = f"{_COLOR[severity.name]}{text}{_COLOR_RESET}"
        self.print(text)

    def print(self, text: str) -> None:
        """Print text that is not a record."""
        self._out.write(text)
        self._out.flush()
