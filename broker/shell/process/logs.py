"""Set-up of the log: console and file, with the formats and severities of the configuration."""

from __future__ import annotations

import fnmatch
import logging
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Protocol

from broker.shell.files.mapped_files import PRIVATE_FILE, make_folder
from formats.ball import Record, compile_format

__all__ = [
    "DEFAULT_FORMAT",
    "LEVELS",
    "LineFormatter",
    "LogSettings",
    "LogSwitches",
    "log_file",
    "severity_name",
    "start_logging",
]

FILE_NAME = "bmqbrkr.log"
FILE_BYTES_MAX = 64 << 20
FILES_KEPT = 4

ROOT = "broker"


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

# A longer line is cut; answers to an operator, which have many lines, are not.
LINE_CHARACTERS_MAX = 16 << 10
# The innermost frames of a traceback.
FRAMES_MAX = 30


def severity_name(level: int) -> str:
    """Return the reference's word for the nearest severity at or below `level`."""
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
    """Records in the form that `spec` gives (see `formats.ball`), line ends included; unknown fields stay as written.

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


class LogSettings(Protocol):
    """The part of the configuration used here (source: mqbcfg::LogController)."""

    @property
    def file_name(self) -> str: ...
    @property
    def rotation_bytes(self) -> int: ...
    @property
    def logfile_format(self) -> str: ...
    @property
    def console_format(self) -> str: ...
    @property
    def logging_verbosity(self) -> str: ...
    @property
    def console_severity_threshold(self) -> str: ...


def start_logging(controller: LogSettings, folder: Path) -> LogSwitches:
    """Log to stderr and to a file: the configured one, or one in `folder`. Return the switches for later changes.

    Raises `OSError` if the file cannot be opened.
    """
    threshold = LEVELS.get(controller.console_severity_threshold.upper(), logging.INFO)
    verbosity = LEVELS.get(controller.logging_verbosity.upper(), logging.INFO)
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(threshold)
    console.setFormatter(LineFormatter(controller.console_format or DEFAULT_FORMAT))
    path = log_file(controller.file_name, folder)
    make_folder(path.parent)
    file = _PrivateLog(path, maxBytes=controller.rotation_bytes or FILE_BYTES_MAX, backupCount=FILES_KEPT)
    file.setFormatter(LineFormatter(controller.logfile_format or DEFAULT_FORMAT))
    # On a full disk a line is lost; a traceback in its place would not help.
    logging.raiseExceptions = False
    root = logging.getLogger(ROOT)
    root.setLevel(min(threshold, verbosity, logging.INFO))
    # A line on stderr is in the file already.
    for handler in (file, console):
        handler.terminator = ""  # the formats have their own line ends
        root.addHandler(handler)
    root.propagate = False
    return LogSwitches(root, console)


class _PrivateLog(RotatingFileHandler):
    """A log whose files only this account can read: its lines name clients and topics."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(PRIVATE_FILE)
        return super()._open()


def log_file(pattern: str, folder: Path) -> Path:
    """Return the log file of a `fileName`, in which %T is the start time and %p the process id (ball::FileObserver)."""
    if not pattern:
        return folder / FILE_NAME
    now = time.gmtime()
    fields = {
        "%T": time.strftime("%Y%m%d_%H%M%S", now),
        "%Y": time.strftime("%Y", now),
        "%M": time.strftime("%m", now),
        "%D": time.strftime("%d", now),
        "%h": time.strftime("%H", now),
        "%m": time.strftime("%M", now),
        "%s": time.strftime("%S", now),
        "%p": str(os.getpid()),
    }
    for field, value in fields.items():
        pattern = pattern.replace(field, value)
    return Path(pattern)


class LogSwitches:
    """Severities that can be changed while the node runs: the LOG commands (source: bmqtsk::LogController)."""

    HELP = (
        "LOG commands; SEVERITY is one of " + "|".join(LEVELS) + ":\n"
        "    HELP                         these lines\n"
        "    INFO                         the severities in force\n"
        "    VERB SEVERITY                log from this severity on\n"
        "    CONSOLE SEVERITY             of these, print on the console from this severity on\n"
        "    CATEGORY EXPRESSION SEVERITY log the categories that match (broker.session, broker.*) from there on"
    )

    def __init__(self, root: logging.Logger, console: logging.Handler) -> None:
        self._root = root
        self._console = console

    def run(self, command: str) -> tuple[int, str]:
        """Carry out a command, without its leading LOG; return 0 or -1, and the answer."""
        match command.upper().split():
            case ["HELP"]:
                return 0, self.HELP
            case ["INFO"]:
                return 0, self._info()
            case ["VERB", severity] if severity in LEVELS:
                self._root.setLevel(LEVELS[severity])
                return 0, f"Verbosity is now {severity}"
            case ["CONSOLE", severity] if severity in LEVELS:
                self._console.setLevel(LEVELS[severity])
                return 0, f"Console severity threshold is now {severity}"
            case ["CATEGORY", expression, severity, *_] if severity in LEVELS:
                names = [name for name in self._categories() if fnmatch.fnmatchcase(name.upper(), expression)]
                for name in names:
                    logging.getLogger(name).setLevel(LEVELS[severity])
                return 0, f"{len(names)} categories are now {severity}"
        return -1, f"Unknown 'LOG' command '{command}'; see 'LOG HELP' for the list of valid commands."

    def _info(self) -> str:
        lines = [
            f"Verbosity: {severity_name(self._root.level)}",
            f"Console severity threshold: {severity_name(self._console.level)}",
        ]
        lines += [
            f"{name}: {severity_name(logging.getLogger(name).getEffectiveLevel())}" for name in self._categories()
        ]
        return "\n".join(lines)

    def _categories(self) -> list[str]:
        known = logging.Logger.manager.loggerDict
        return [ROOT, *sorted(name for name in known if name.startswith(f"{ROOT}."))]
