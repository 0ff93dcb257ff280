"""Bytes on their way to one peer, in the order of the decisions: messages of one kind share an event.

Invariant: `data[start:]` is the event that is still open (`kind` is not NONE), its length not yet written.
"""

from __future__ import annotations

import struct

from formats.schema import Buffer
from formats.wire.event import EVENT_HEADER_SIZE, EventType, build_event

__all__ = ["Outbox"]

# An open event that has grown this long is closed, so that the peer can begin with it (the reference's Nagle size).
EVENT_BYTES_SOFT = 1 << 20

_LENGTH = struct.Struct(">I")
_HEADS: dict[EventType, bytes] = {kind: build_event(kind, b"") for kind in EventType}


class Outbox:
    """An output buffer that knows its open event."""

    __slots__ = ("data", "kind", "start")

    def __init__(self) -> None:
        self.data = bytearray()
        self.kind = EventType.UNDEFINED
        self.start = 0

    def event(self, kind: EventType, head: bytes = b"") -> bytearray:
        """The buffer, at its end an open event of `kind`; `head` begins the body of a new one."""
        data = self.data
        if self.kind is kind and len(data) - self.start < EVENT_BYTES_SOFT:
            return data
        self._close()
        self.kind = kind
        self.start = len(data)
        data += _HEADS[kind]
        data += head
        return data

    def whole(self, event: Buffer) -> None:
        """Add an event that is complete, or several."""
        self._close()
        self.data += event

    def _close(self) -> None:
        if self.kind is not EventType.UNDEFINED:
            assert len(self.data) - self.start >= EVENT_HEADER_SIZE
            _LENGTH.pack_into(self.data, self.start, len(self.data) - self.start)
            self.kind = EventType.UNDEFINED

    def take(self) -> bytearray:
        """All that is to be sent; the box is empty afterwards."""
        self._close()
        data = self.data
        self.data = bytearray()
        return data
