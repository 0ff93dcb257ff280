"""Messages as parts of an output: lines one after the other, a list in JSON, or CSV with its line of names.

Each part can be written when it comes, so that a stream without an end can be read while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bmqctl.carrying.messages.received import Form

__all__ = ["Frame", "Framer"]


class Frame(NamedTuple):
    """The maker of the line of each message, and the bytes before, between and after all of them.

    With `between` a line begins with the line feed, rather than end with it.
    """

    form: Form
    head: bytes = b""
    between: bytes = b""
    end: bytes = b""


class Framer:
    """The bytes of one output, in their order: any number of `join`, then `end`, or `cut` where the run has failed.

    `begin` before them is for a stream: without it, nothing is printed before the first message.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._head = frame.head
        self._is_first = True

    def begin(self) -> bytes:
        """Return what is before the first message, if it has not been returned yet."""
        head, self._head = self._head, b""
        return head

    def join(self, lines: Iterable[bytes]) -> bytes:
        """Return the lines of messages, with what is between them and those before."""
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
        """Return the bytes after the last message."""
        return self.begin() + self._frame.end

    def cut(self) -> bytes:
        """Return what completes an output that ends early: nothing, if nothing of it has been returned."""
        return b"" if self._head else self._frame.end
