"""The file with the progress of delayed messages (source: DelayOffsetSerializeWrapper)."""

from __future__ import annotations

from typing import NamedTuple

from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import DataVersion

__all__ = ["DELAY_OFFSETS", "DelayOffsets"]


class DelayOffsets(NamedTuple):
    """`config/delayOffset.json`: the offset of the next message in the queue of each delay level."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion = DataVersion()


DELAY_OFFSETS = BodyCodec(DelayOffsets)
