"""The declaration of binary headers, read at run time; `formats.rocketmq.remoting.frame` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, i8, i16, i32

__all__ = ["BINARY_FRONT", "BinaryFront"]


class BinaryFront(NamedTuple):
    """The fixed part of a binary header; the length of the remark follows.

    rocketmq::RocketMQSerializable, 13 bytes:

        0 | code 16 | language 8 | version 16 | opaque 32 | flag 32 |
    """

    code: Annotated[int, i16, "A RequestCode, or the ResponseCode of an answer."]
    language: Annotated[int, i8, "A LanguageCode."]
    version: Annotated[int, i16, "The sender's version, as a number."]
    opaque: Annotated[int, i32, "Chosen by who asks, repeated in the answer."]
    flag: Annotated[int, i32, "FrameFlag."]


BINARY_FRONT = Layout(BinaryFront, size=13, upstream="rocketmq::RocketMQSerializable")
