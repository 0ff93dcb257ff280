"""The bytes of requests that a proxy keeps until their broker or their sender is known."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.remoting.frame import Frame

__all__ = ["HeldBytes", "size_in_memory"]

# The memory of a header's field beside its characters.
_FIELD_BYTES: Final = 200


def size_in_memory(frame: Frame) -> int:
    """Return the approximate memory of a frame: headers may be as large as bodies."""
    fields = frame.ext_fields or {}
    return len(frame.body) + sum(len(name) + len(value) + _FIELD_BYTES for name, value in fields.items())


class HeldBytes:
    """The number of these bytes, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def take(self, size: int) -> bool:
        """Count `size` bytes; return False, and count nothing, if that exceeds the limit."""
        if self._held + size > self._most:
            return False
        self._held += size
        return True

    def give_back(self, size: int) -> None:
        self._held -= size
