"""The term of the last election that a node took part in, beside its store: it outlasts the process and the machine.

A node that forgot its term could vote twice in one. So an unreadable file is an error and never means term 0, and each
write is on the disk before it returns. The file is first made whole under another name; later writes overwrite its
bytes, which needs no further room.
"""

from __future__ import annotations

import os
from pathlib import Path

from crc32c import crc32c

from broker.bmq.consensus.election import TERM_MAX
from broker.shell.files.folders import flush_folder
from broker.shell.files.mapped_files import open_private, read_regular
from broker.shell.host.calls import HOST

__all__ = ["TermFile", "TermUnreadable"]

NAME = "elector.term"
# Digits of the highest term, 2**64 - 1; a space, the digits' checksum, and a line feed follow.
DIGITS = 20
SIZE = DIGITS + 10
# Files of earlier releases have no checksum.
OLDER_SIZE = DIGITS + 1


class TermUnreadable(Exception):
    """An existing file that holds no term; the text names it, the reason and the remedy."""


class TermFile:
    """One number. Raises OSError if the folder cannot be written to, `TermUnreadable` for a damaged file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        try:
            data = read_regular(self._path)
        except FileNotFoundError:
            data = None
        except OSError as error:
            raise self._unreadable((error.strerror or "cannot be read").lower()) from None
        self._term = 0 if data is None else self._parsed(data)
        if data is None or len(data) != SIZE:
            self._replace()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def read(self) -> int:
        """Return the stored term; 0 if there is none."""
        return self._term

    def write(self, term: int) -> None:
        """Store a term: once it returns, neither the end of the process nor a power failure undoes it.

        Raises OSError if the term may not be on the disk.
        """
        data = _packed(term)
        if os.pwrite(self._fd, data, 0) < len(data):
            raise OSError(0, "the term was only partly written", str(self._path))
        HOST.flush_data(self._fd)
        self._term = term

    def close(self) -> None:
        os.close(self._fd)

    def _replace(self) -> None:
        new = self._path.with_suffix(".new")
        with open(new, "wb", opener=open_private) as file:
            file.write(_packed(self._term))
            file.flush()
            HOST.flush(file.fileno())
        new.rename(self._path)
        flush_folder(self._path.parent)

    def _parsed(self, data: bytes) -> int:
        digits = data[:DIGITS]
        if len(data) not in (SIZE, OLDER_SIZE):
            raise self._unreadable(f"has {len(data)} bytes, not {SIZE}")
        if not digits.isdigit():
            raise self._unreadable("does not begin with a number")
        term = int(digits)
        if data not in (_packed(term), digits + b"\n"):
            raise self._unreadable("does not match its checksum")
        if term > TERM_MAX:
            raise self._unreadable(f"holds {term}, which no election can reach")
        return term

    def _unreadable(self, reason: str) -> TermUnreadable:
        return TermUnreadable(
            f"{self._path}: {reason}; this node may have voted in a term that it no longer knows: when the other nodes "
            "of the cluster have a leader, remove the file and start this node again"
        )


def _packed(term: int) -> bytes:
    digits = f"{term:0{DIGITS}}".encode()
    return digits + f" {crc32c(digits):08x}\n".encode()
