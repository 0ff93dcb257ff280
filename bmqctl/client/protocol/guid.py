"""A client's GUIDs, and their description in its identity."""

from __future__ import annotations

from typing import Final

import formats.bmq.guid
from formats.bmq.control.messages import GuidInfo
from formats.bmq.guid import CLIENT_ID_SIZE

EPOCH_NS_MAX: Final = (1 << 63) - 1

__all__ = ["CLIENT_ID_SIZE", "ClientGuidGenerator"]


class ClientGuidGenerator(formats.bmq.guid.GuidGenerator):
    """A generator whose starting time the broker learns from the client's identity."""

    __slots__ = ("_client", "_epoch_ns")

    def __init__(self, client_id: bytes, start_ns: int, epoch_ns: int) -> None:
        """`start_ns` is the monotonic clock and `epoch_ns` the wall clock, both at the time of the call."""
        super().__init__(client_id, start_ns)
        self._client = client_id
        # The identity's field has 64 bits, up to the year 2262.
        self._epoch_ns = min(epoch_ns, EPOCH_NS_MAX)

    def info(self) -> GuidInfo:
        return GuidInfo(client_id=self._client.hex().upper(), nano_seconds_from_epoch=self._epoch_ns)
