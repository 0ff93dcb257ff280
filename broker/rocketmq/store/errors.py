"""The errors of the store."""

from __future__ import annotations

__all__ = ["DiskFull", "NoPlace", "StoreFileDamaged", "TooLarge", "Unstorable"]


class StoreFileDamaged(Exception):
    """Invalid content in a file of the store. The text names the file, the offset and the remedy."""

    def __init__(self, file: str, offset: int, reason: str, remedy: str) -> None:
        self.problem = f"{file} at offset {offset}: {reason}"
        super().__init__(f"{self.problem}; {remedy}")
        self.file = file
        self.offset = offset
        self.remedy = remedy


class DiskFull(Exception):
    """Lack of room for a write, on the disk or among the files that may be open; nothing was written."""


class Unstorable(Exception):
    """Refusal of a message regardless of free space; nothing was written."""


class TooLarge(Unstorable):
    """Refusal of a record that does not fit into a file of the commit log."""


class NoPlace(Unstorable):
    """Refusal of a topic or a queue that the store could not open again."""
