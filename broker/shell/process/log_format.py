"""Records of the program's log as lines in the reference's format (see `formats.ball`), and its severities."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime

from formats.ball import Record, compile_format

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

# A longer line is cut; answers to an operator, which have many lines, are shown whole.
LINE_CHARACTERS_MAX = 16 << 10
# The innermost frames of a traceback.
FRAMES_MAX = 30


def severity_name(level: int) -> str:
    """Return the reference's word for a severity: that of the nearest one at or below `level`."""
    return next((name for name, at_least in LEVELS.items() if level >= at_least), "TRACE")


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    lines = text.split("\n") if getattr(record, "multiline", False) else [_bounded(text)]
    if record.exc_info:
        trace = "".join(traceback.format_exception(*record.exc_info, limit=-FRAMES_MAX))
        lines += map(_bounded, trace.rstrip().split("\n"))
    return "\n".join(map(_printable, lines))


def _bounded(text: str) -> str:
    """Return a line, cut at the limit: it may contain names that peers give themselves."""
    beyond = len(text) - LINE_CHARACTERS_MAX
    return text if beyond <= 0 else f"{text[:LINE_CHARACTERS_MAX]}... ({beyond} characters more)"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class LineFormatter(logging.Formatter):
    """Records in the form that `spec` gives, line ends included; unknown fields stay as they are written.

    Messages contain data from peers, which must neither begin a line nor control the terminal. A record made with
    `extra={"multiline": True}` keeps its line breaks; its maker is responsible for the content of its lines.
    """

    def __init__(self, spec: str) -> None:
        super().__init__()
        self._form = compile_format(spec)

    def format(self, record: logging.LogRecord) -> str:
        entry = Record(
            datetime.fromtimestamp(record.created, UTC),
            record.process or 0,
            record.thread or 0,
            severity_name(record.levelno),
            record.name,
            record.pathname,
            record.lineno,
            _message(record),
        )
        return self._form(entry)
