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
    """The pipe cannot be had; the text says why, and what to do."""


class ControlPipe:
    """Makes the pipe, gives `on_line` every line that comes, without its end, and removes the pipe at last.

    Only the node's own user may write to it: whoever may, administers the node. Lines wait in the pipe until it is
    read from; set `on_line` before that.
    """

    on_line: Callable[[str], None]
    work = "reading from the control pipe"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = b""  # a line that is not whole yet
        self._passing_over = False  # until the end of a line that is too long
        _make_fifo(path)
        # Open for writing as well: the pipe would otherwise be at its end whenever nobody writes.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def on_readable(self) -> None:
        """Take what is there, and handle the whole lines."""
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
    """A FIFO of our own; one that a dead node left is replaced, anything else is in the way."""
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
        # ENXIO: nobody reads it any more.
        path.unlink()
        os.mkfifo(path, 0o600)
        return
    raise PipeInUse(f"{path}: another node reads this control pipe; stop it, or start in another folder")
