# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The output to one peer, in the order of the decisions: messages of one kind share an event.

ACKs and CONFIRMs are collected separately: they are short, and would otherwise alternate with the PUSHes or PUTs on the
same way, with an event for each message. They follow earlier output, and no complete event overtakes them.

Invariant: `data[start:]` is the event that is still open (`kind` is not UNDEFINED), its length not yet written;
`beside` is another one, of `beside_kind`, if it is not empty.
"""

from __future__ import annotations

import struct
from typing import Final

from formats.bmq.wire.event import EventType, build_event
from formats.schema import Buffer

__all__ = ["Outbox"]

# An open event of this size is closed, so that the peer can start on it (the reference's Nagle size).
EVENT_BYTES_SOFT: Final = 1 << 20

_LENGTH: Final = struct.Struct(">I")
_NONE: Final = EventType.UNDEFINED
_ACK: Final = EventType.ACK
_CONFIRM: Final = EventType.CONFIRM
_HEADS: Final[dict[EventType, bytes]] = {kind: build_event(kind, b"") for kind in EventType}


class Outbox:
    """An output buffer that knows its open event."""

    __slots__ = ("beside", "beside_kind", "data", "kind", "start")

    def __init__(self) -> None:
        self.data = bytearray()
        self.beside = bytearray()
        self.beside_kind = _NONE
        self.kind = _NONE
        self.start = 0

    def event(self, kind: EventType, head: bytes = b"") -> bytearray:
        """Return the buffer, with an open event of `kind` at its end; `head` begins the body of a new one."""
        data = self.data
        if self.kind is kind and len(data) - self.start < EVENT_BYTES_SOFT:
            return data
        if kind is _ACK or kind is _CONFIRM:
            beside = self.beside
            if self.beside_kind is kind and len(beside) < EVENT_BYTES_SOFT:
                return beside
            if beside:
                self._close_all()
                beside = self.beside
            self.beside_kind = kind
            beside += _HEADS[kind]
            beside += head
            return beside
        if self.kind is not _NONE:
            self._close()
        self.kind = kind
        self.start = len(data)
        data += _HEADS[kind]
        data += head
        return data

    @property
    def size(self) -> int:
        return len(self.data) + len(self.beside)

    def whole(self, event: Buffer) -> None:
        self._close_all()
        self.data += event

    def _close(self) -> None:
        if self.kind is not _NONE:
            _LENGTH.pack_into(self.data, self.start, len(self.data) - self.start)
            self.kind = _NONE

    def _close_all(self) -> None:
        self._close()
        beside = self.beside
        if beside:
            _LENGTH.pack_into(beside, 0, len(beside))
            self.beside = bytearray()
            self.beside_kind = _NONE
            self.data += beside

    def clear(self) -> None:
        self.data = bytearray()
        self.beside = bytearray()
        self.kind = self.beside_kind = _NONE

    def take(self) -> bytearray:
        data, beside = self.data, self.beside
        if self.kind is not _NONE:
            _LENGTH.pack_into(data, self.start, len(data) - self.start)
            self.kind = _NONE
        if beside:
            _LENGTH.pack_into(beside, 0, len(beside))
            self.beside = bytearray()
            self.beside_kind = _NONE
            if not data:
                return beside
            data += beside
        self.data = bytearray()
        return data
