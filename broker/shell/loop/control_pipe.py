"""The control pipe: a FIFO of which each line is a command (source: balb::PipeControlChannel)."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

__all__ = ["ControlPipe", "PipeInUse"]

log = logging.getLogger("broker.control")

READ_BYTES = 64 << 10
LINE_BYTES_MAX = 64 << 10


class PipeInUse(Exception):
    """The pipe cannot be used; the text has the reason and the remedy."""


class ControlPipe:
    """Creates the pipe, calls `on_line` with every line without its end, and finally removes the pipe.

    Only the node's own account may write to it: writers administer the node. Lines wait in the pipe until it is read;
    set `on_line` before that.
    """

    on_line: Callable[[str], None]
    work = "reading from the control pipe"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = b""  # an incomplete line
        self._passing_over = False  # until the end of a line that is too long
        _make_fifo(path)
        # Open for writing as well: otherwise the pipe would be at its end whenever it has no writer.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def on_readable(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        *lines, rest = (self._begun + data).split(b"\n")
        for line in lines:
            if self._passing_over:
                self._passing_over = False
            elif line.strip():
                self.on_line(line.decode(errors="replace").rstrip("\r"))
        if len(rest) > LINE_BYTES_MAX:
            if not self._passing_over:
                log.error("a command of more than %d bytes on the control pipe is ignored", LINE_BYTES_MAX)
            self._passing_over = True
            rest = b""
        self._begun = b"" if self._passing_over else rest

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink(missing_ok=True)


def _make_fifo(path: Path) -> None:
    """Create a FIFO; replace one that a dead node left. Anything else at the path is an error."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        os.mkfifo(path, 0o600)
        return
    if not stat.S_ISFIFO(found.st_mode):
        raise PipeInUse(f"{path}: is in the way of the control pipe; remove it, or start in another folder")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        # ENXIO: it has no reader any more.
        path.unlink()
        os.mkfifo(path, 0o600)
        return
    raise PipeInUse(f"{path}: another node reads this control pipe; stop it, or start in another folder")
