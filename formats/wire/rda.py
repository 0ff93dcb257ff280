"""How often a message may still be delivered, in one byte (source: bmqp::RdaInfo).

RDA is for remaining delivery attempts. With `unlimited` the other two mean nothing and are zero. `poisonous`: some
consumer went away with the message unconfirmed, so that it is better delivered alone.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.codes import RDA_COUNTER_MAX
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
"""The byte of a message that may be delivered as often as it takes."""


def limited(counter: int, poisonous: bool = False) -> int:
    """The byte of a message that may be delivered `counter` times more; OverflowError above `RDA_COUNTER_MAX`."""
    if not 0 <= counter <= RDA_COUNTER_MAX:
        raise OverflowError(f"{counter} delivery attempts do not fit 0..{RDA_COUNTER_MAX}")
    return RDA_INFO.pack(RdaInfo(0, poisonous, counter))[0]
