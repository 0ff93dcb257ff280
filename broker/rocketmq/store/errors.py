"""The errors of the store."""

from __future__ import annotations

__all__ = ["DiskFull", "StoreDamaged", "TooLarge"]


class StoreDamaged(Exception):
    """A file of the store that does not hold what it must. The text names the file, the offset and the remedy."""

    def __init__(self, file: str, offset: int, reason: str, remedy: str) -> None:
        super().__init__(f"{file} at offset {offset}: {reason}; {remedy}")
        self.file = file
        self.offset = offset


class DiskFull(Exception):
    """No room for a write, on the disk or among the files that may be open; nothing was written."""


class TooLarge(Exception):
    """A message whose record does not fit into a file of the commit log."""
