"""The only error that a decoder raises about its input."""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["FormatError", "check_memory"]

# The text of Z_MEM_ERROR in `zlib`, which allocates its window only while it decompresses.
_NO_MEMORY: Final = "Error -4 "


class FormatError(ValueError):
    """Malformed input.

    `path` names the structure or field (dotted, `wire.PutHeader.message_words`), `offset` is in bytes from the start of
    the buffer given to the decoder, `reason` is one clause for a person.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} at offset {self.offset}: {self.reason}"

    def shifted(self, by: int) -> FormatError:
        """The same fault in a buffer that starts `by` bytes earlier."""
        return FormatError(self.path, self.offset + by, self.reason)


def check_memory(fault: zlib.error) -> None:
    """Raise `MemoryError` if zlib failed for lack of memory, not because of its input."""
    if str(fault).startswith(_NO_MEMORY):
        raise MemoryError(str(fault)) from fault
