"""Message GUIDs as a client makes them.

    +---+----------+-----------------+------------------+
    |ver| counter  | timer tick      | client id        |
    |2  | 22 bits  | 56 bits, ns     | 48 bits          |
    +---+----------+-----------------+------------------+

Source: `bmqp::MessageGUIDGenerator`, version 1 of its layout. The tick counts from the generator's start, whose time
the client tells the broker in its identity, with the id.
"""

from __future__ import annotations

from formats.control.messages import GuidInfo

__all__ = ["CLIENT_ID_SIZE", "GuidGenerator"]

CLIENT_ID_SIZE = 6
_VERSION = 1 << 126
_COUNTER_MASK = (1 << 22) - 1
_TICK_MASK = (1 << 56) - 1


class GuidGenerator:
    """Unique for the client id as long as fewer than 2**22 are made in a nanosecond."""

    __slots__ = ("_client", "_counter", "_epoch_ns", "_fixed", "_start_ns")

    def __init__(self, client_id: bytes, start_ns: int, epoch_ns: int) -> None:
        """`start_ns` is the monotonic clock, `epoch_ns` the wall clock, both now."""
        if len(client_id) != CLIENT_ID_SIZE:
            raise ValueError(f"a client id has {CLIENT_ID_SIZE} bytes")
        self._client = client_id
        self._fixed = _VERSION | int.from_bytes(client_id, "big")
        self._start_ns = start_ns
        self._epoch_ns = epoch_ns
        self._counter = 0

    def make(self, now_ns: int) -> bytes:
        """The next GUID, 16 bytes."""
        counter = self._counter
        self._counter = counter + 1 & _COUNTER_MASK
        tick = now_ns - self._start_ns & _TICK_MASK
        return (self._fixed | counter << 104 | tick << 48).to_bytes(16, "big")

    def info(self) -> GuidInfo:
        """What the client's identity says of its GUIDs."""
        return GuidInfo(client_id=self._client.hex().upper(), nano_seconds_from_epoch=self._epoch_ns)
