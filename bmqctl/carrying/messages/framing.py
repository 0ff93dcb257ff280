"""Messages as parts of an output: lines, a JSON list, or CSV with its header.

Each part can be written when it comes, so that an endless stream can be read while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bmqctl.carrying.messages.received import Form

__all__ = ["Frame", "Framer"]


class Frame(NamedTuple):
    """The maker of each message's line, and the bytes before, between and after all of them.

    With `between` a line begins with the line feed, rather than ends with it.
    """

    form: Form
    head: bytes = b""
    between: bytes = b""
    end: bytes = b""


class Framer:
    """The bytes of one output, in order: any number of `join`, then `end`, or `cut` after a failure.

    A stream calls `begin` first: otherwise nothing is printed before the first message.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._head = frame.head
        self._is_first = True

    def begin(self) -> bytes:
        """The bytes before the first message, once."""
        head, self._head = self._head, b""
        return head

    def join(self, lines: Iterable[bytes]) -> bytes:
        """The lines of messages, with the bytes before and between them."""
        lines = list(lines)
        if not lines:
            return b""
        parts = [self.begin()]
        if not self._frame.between:
            return b"".join([*parts, *lines])
        for line in lines:
            parts += [b"" if self._is_first else self._frame.between, b"\n", line.removesuffix(b"\n")]
            self._is_first = False
        return b"".join(parts)

    def end(self) -> bytes:
        return self.begin() + self._frame.end

    def cut(self) -> bytes:
        """The bytes that complete a partial output; none if nothing was returned yet."""
        return b"" if self._head else self._frame.end
