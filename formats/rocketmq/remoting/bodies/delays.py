"""The file that keeps how far delayed messages were given out (source: DelayOffsetSerializeWrapper)."""

from __future__ import annotations

from typing import NamedTuple

from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import DataVersion

__all__ = ["DELAY_OFFSETS", "DelayOffsets"]


class DelayOffsets(NamedTuple):
    """`config/delayOffset.json`: by delay level the offset of the next message in its queue."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion = DataVersion()


DELAY_OFFSETS = BodyCodec(DelayOffsets)
