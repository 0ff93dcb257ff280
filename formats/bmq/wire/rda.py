"""Remaining delivery attempts (RDA) of a message, in one byte (source: bmqp::RdaInfo).

With `unlimited` the other two fields are zero. `poisonous` is set if a consumer disconnected with the message
unconfirmed: it is then better delivered alone.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bmq.codes import RDA_COUNTER_MAX
from formats.schema import Annotated, Layout, bits

__all__ = ["RDA_INFO", "UNLIMITED", "RdaInfo", "limited"]


class RdaInfo(NamedTuple):
    """The byte's fields; `counter` is 0..63.

    bmqp::RdaInfo, 1 byte:

        0 | unlimited 1 | poisonous 1 | counter 6 |
    """

    unlimited: Annotated[int, bits(1), "1: the message may be delivered as often as it takes; the other bits are 0."]
    poisonous: Annotated[int, bits(1), "1: a consumer went away with the message unconfirmed."]
    counter: Annotated[int, bits(6), "How often the message may still be delivered."]


RDA_INFO = Layout(RdaInfo, size=1, upstream="bmqp::RdaInfo")

UNLIMITED = RDA_INFO.pack(RdaInfo(1, 0, 0))[0]
"""The byte for unlimited delivery attempts."""


def limited(counter: int, poisonous: bool = False) -> int:
    """Encode `counter` remaining delivery attempts. OverflowError above `RDA_COUNTER_MAX`."""
    if not 0 <= counter <= RDA_COUNTER_MAX:
        raise OverflowError(f"{counter} delivery attempts do not fit 0..{RDA_COUNTER_MAX}")
    return RDA_INFO.pack(RdaInfo(0, poisonous, counter))[0]
