"""The largest frames that a peer may send, by the code of the request."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.codes import RequestCode
from formats.rocketmq.frame import FRAME_BYTES_MAX
from formats.rocketmq.raft import CODE

__all__ = ["LONG_HEADER_BYTES_MAX", "SHORT_FRAME_BYTES_MAX", "frame_bytes_max"]

# The bound on frames that neither carry messages nor describe all topics of a broker.
SHORT_FRAME_BYTES_MAX: Final = 1 << 20
# The bound on the header of a longer frame: properties of 32 KiB, escaped, take up to 112 KiB of it.
LONG_HEADER_BYTES_MAX: Final = 256 << 10

_LONG: Final = frozenset(
    (
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE_V2),
        int(RequestCode.REGISTER_BROKER),
        CODE,
    )
)


def frame_bytes_max(code: int) -> int:
    """Return the greatest length that the frame of a request with this code may state in its first four bytes."""
    return FRAME_BYTES_MAX if code in _LONG else SHORT_FRAME_BYTES_MAX
