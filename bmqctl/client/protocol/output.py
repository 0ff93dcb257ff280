"""Outgoing events of a session: complete ones, then at most one that still takes messages."""

from __future__ import annotations

from typing import Final

from formats.bmq.wire.confirm import CONFIRM_HEADER_BYTES
from formats.bmq.wire.event import EVENT_HEADER, EVENT_HEADER_SIZE, PROTOCOL_VERSION, EventHeader, EventType
from formats.schema import Buffer

__all__ = ["Output"]

# An event is closed at this size even with few messages, to limit the broker's buffer.
EVENT_SIZE_FULL: Final = 1 << 20
_HEADER_WORDS: Final = EVENT_HEADER_SIZE // 4


class Output:
    """The bytes to write; messages are appended to `data`, see `begin`.

    The header of an open event is written when it is closed.
    """

    __slots__ = ("_count", "_kind", "_start", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self._kind: EventType | None = None
        self._start = 0
        self._count = 0

    def begin(self, kind: EventType, batch: int) -> bytearray:
        """Make room for one more message in an event of `kind`, of at most `batch`; return `data` to append it to."""
        data = self.data
        if self._kind is kind and self._count < batch and len(data) - self._start < EVENT_SIZE_FULL:
            self._count += 1
            return data
        self.close()
        self._kind = kind
        self._start = len(data)
        self._count = 1
        data += bytes(EVENT_HEADER_SIZE)
        if kind is EventType.CONFIRM:
            data += CONFIRM_HEADER_BYTES
        return data

    def whole(self, event: Buffer | bytearray) -> None:
        self.close()
        self.data += event

    def close(self) -> None:
        """Write the header of the open event, which closes it."""
        if self._kind is None:
            return
        length = len(self.data) - self._start
        header = EventHeader(0, length, PROTOCOL_VERSION, self._kind, _HEADER_WORDS, 0, b"\0")
        EVENT_HEADER.pack_into(self.data, self._start, header)
        self._kind = None

    def take(self) -> bytearray:
        self.close()
        data, self.data = self.data, bytearray()
        return data

    def clear(self) -> None:
        self.data.clear()
        self._kind = None
