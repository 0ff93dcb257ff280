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

from bmqctl.common.harmless import HarmlessStream
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
    return Record(datetime.now(UTC), os.getpid(), threading.get_ident(), severity.name, category, file, line, message)


class Log:
    """Writes records up to `threshold`, without buffering."""

    def __init__(
        self, text: str = DEFAULT_FORMAT, threshold: Severity = Severity.INFO, out: IO[str] | None = None
    ) -> None:
        self._format = compile_format(text or DEFAULT_FORMAT)
        self._threshold = threshold
        stream = out or sys.stdout
        # Colours go to the stream itself, since they are the tool's own.
        self._stream: IO[str] = stream.rich_proxied_file if isinstance(stream, HarmlessStream) else stream
        self._out = HarmlessStream(self._stream)
        self._colors = self._stream.isatty()

    def write(self, severity: Severity, category: str, message: str, depth: int = 1) -> None:
        """Write a record; its source is the caller `depth` frames up."""
        if severity > self._threshold:
            return
        caller = sys._getframe(depth)
        text = self._format(make_record(severity, category, caller.f_code.co_filename, caller.f_lineno, message))
        color = _COLOR.get(severity.name, "") if self._colors else ""
        self._stream.write(color)
        self.print(text)
        if color:
            self._stream.write(_COLOR_RESET)
            self._stream.flush()

    def print(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
