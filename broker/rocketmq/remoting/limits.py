"""The maximum sizes of peers' frames, by the code of the request."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.remoting.bodies.routes import REGISTRATION_BYTES_MAX
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX
from formats.rocketmq.remoting.raft import CODE

__all__ = ["LONG_HEADER_BYTES_MAX", "SHORT_FRAME_BYTES_MAX", "frame_bytes_max"]

# The maximum for frames without messages, and for a registration beside its body.
SHORT_FRAME_BYTES_MAX: Final = 1 << 20
# The maximum for the header of a longer frame. Escaped properties of 32 KiB take up to 112 KiB of it.
LONG_HEADER_BYTES_MAX: Final = 256 << 10

_LONG: Final = frozenset(
    (
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE_V2),
        CODE,
    )
)


def frame_bytes_max(code: int) -> int:
    """Return the maximum length that the frame of a request may state in its first four bytes."""
    if code == RequestCode.REGISTER_BROKER:
        return REGISTRATION_BYTES_MAX + SHORT_FRAME_BYTES_MAX
    return FRAME_BYTES_MAX if code in _LONG else SHORT_FRAME_BYTES_MAX
