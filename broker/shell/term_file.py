"""The term of the last election that a node took part in, beside its store: it outlasts the process."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["TermFile"]

NAME = "elector.term"
DIGITS = 20


class TermFile:
    """One number, written over in one go. Raises OSError where the folder cannot be written to."""

    def __init__(self, folder: Path, *, synced: bool = False) -> None:
        self._synced = synced
        self._fd = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> int:
        """The term that was kept; 0 if there is none."""
        text = os.pread(self._fd, DIGITS, 0)
        return int(text) if len(text) == DIGITS and text.isdigit() else 0

    def write(self, term: int) -> None:
        """Keep a term; once it returns, the end of the process (if `synced`, a power failure) cannot undo it."""
        os.pwrite(self._fd, f"{term:0{DIGITS}}\n".encode(), 0)
        if self._synced:
            os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
