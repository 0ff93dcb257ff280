"""Where the log goes: the console and a file beside the store, with the reference's words for severities."""

from __future__ import annotations

import logging
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Protocol

__all__ = ["start_logging"]

FILE_NAME = "bmqbrkr.log"
FILE_BYTES_MAX = 64 << 20
FILES_KEPT = 4

# The reference's severities (ball::Severity) and their nearest here.
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class _OneLine(logging.Formatter):
    """What peers send stands in messages: nothing in it may begin a line of its own, or speak to the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class LogController(Protocol):
    """What of the configuration matters here."""

    @property
    def console_severity_threshold(self) -> str: ...


def start_logging(controller: LogController, folder: Path) -> None:
    """Log to stderr from the configured severity on, and everything from INFO on to a file in `folder`."""
    threshold = _LEVELS.get(controller.console_severity_threshold.upper(), logging.INFO)
    form = _OneLine("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    form.converter = time.gmtime
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(threshold)
    file = RotatingFileHandler(folder / FILE_NAME, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT)
    # On a full disk a line is lost; a traceback in its place would help nobody.
    logging.raiseExceptions = False
    root = logging.getLogger("broker")
    root.setLevel(min(threshold, logging.INFO))
    for handler in (console, file):
        handler.setFormatter(form)
        root.addHandler(handler)
    root.propagate = False
