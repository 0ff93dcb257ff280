"""The only error that a decoder raises."""

from __future__ import annotations

__all__ = ["FormatError"]


class FormatError(ValueError):
    """Bytes that are not what they claim to be.

    `path` names the structure or field (dotted, `wire.PutHeader.message_words`), `offset` is in bytes from
    the start of the buffer given to the decoder, `reason` is one clause for a person.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} at offset {self.offset}: {self.reason}"

    def shifted(self, by: int) -> FormatError:
        """The same fault, seen from a buffer that starts `by` bytes earlier."""
        return FormatError(self.path, self.offset + by, self.reason)
