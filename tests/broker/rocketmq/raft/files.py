"""A journal's file in memory, whose disk can fail, lose power or be full."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass


@dataclass
class MemoryFile:
    """A file whose bytes are all on the disk, but for what a crash in the middle of a write leaves."""

    data: bytes = b""
    name: str = "log"
    is_sound: bool = True
    is_full: bool = False
    fails_to_flush: bool = False
    writes: int = 0

    def read(self) -> bytes:
        return self.data

    def append(self, data: bytes) -> None:
        assert self.is_sound
        self._write()
        self.data += data
        if self.fails_to_flush:
            self.is_sound = False
            raise OSError(errno.EIO, "Input/output error")

    def replace(self, data: bytes) -> None:
        self._write()
        if self.fails_to_flush:
            raise OSError(errno.EIO, "Input/output error")
        self.data = data
        self.is_sound = True

    def _write(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.writes += 1

    def tear(self, written: bytes, draw: random.Random) -> None:
        """Leave part of a write, as a power failure would."""
        self.data += written[: draw.randrange(len(written))]
