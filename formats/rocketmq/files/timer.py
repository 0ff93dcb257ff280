"""The timer wheel and its log, which keep messages with their own delivery time.

Source: Slot, TimerWheel, TimerLog.

The wheel is a table of slots, one for each tick of two rounds: a time's slot is its number of ticks modulo the number
of slots. A slot names the first and the last record of its time in the timer log; each record names the previous one.

Only tests use this module, to read a store of the original: bmqctl keeps delayed messages in other ways.
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

from formats.schema import Annotated, Layout, i32, i64, u32

__all__ = [
    "NONE",
    "TIMER_RECORD",
    "TIMER_SLOT",
    "TimerFlag",
    "TimerRecord",
    "TimerSlot",
    "slot_index",
]

NONE = -1  # no position


class TimerFlag(IntFlag):
    """The magic number of a record, bit by bit.

    `ROLL`: the message is due beyond the wheel's span and is put into it again. `DELETE`: it recalls another message.
    """

    DEFAULT = 1
    ROLL = 2
    DELETE = 4


class TimerSlot(NamedTuple):
    """One tick of the wheel: its time in ticks, and its records in the timer log, from the last back to the first.

    rocketmq::Slot, 32 bytes:

         0 | ticks 64    |
         8 | first 64    |
        16 | last 64     |
        24 | messages 32 |
        28 | magic 32    |
    """

    ticks: Annotated[int, i64, "The slot's time, in ticks."]
    first: Annotated[int, i64, "Position of its first record in the timer log; -1 for none."]
    last: Annotated[int, i64, "Position of its last record."]
    messages: Annotated[int, i32, "How many records it has."]
    magic: Annotated[int, i32, "Not used."]


class TimerRecord(NamedTuple):
    """One timer message in the log. `written_ms + delay_ms` is its delivery time; `previous` is -1 for a slot's first.

    `flags` are a `TimerFlag`; `topic_hash` is that of the message's final topic.

    rocketmq::TimerLog, 52 bytes:

         0 | size 32            |
         4 | previous 64        |
        12 | flags 32           |
        16 | written_ms 64      |
        24 | delay_ms 32        |
        28 | physical_offset 64 |
        36 | message_size 32    |
        40 | topic_hash 32      |
        44 | reserved 64        |
    """

    size: Annotated[int, i32, "Bytes of this record."]
    previous: Annotated[int, i64, "Position of the slot's record before this one; -1 for the first."]
    flags: Annotated[int, u32, "TimerFlag."]
    written_ms: Annotated[int, i64, "When it was written, in milliseconds since the epoch."]
    delay_ms: Annotated[int, i32, "The delivery time is `written_ms` plus this."]
    physical_offset: Annotated[int, i64, "Where the message's record begins in the commit log."]
    message_size: Annotated[int, i32, "Bytes of that record."]
    topic_hash: Annotated[int, i32, "Hash of the topic that the message goes to in the end."]
    reserved: Annotated[int, i64, "Reserved; written as zero."]


TIMER_SLOT = Layout(TimerSlot, size=32, upstream="rocketmq::Slot")
TIMER_RECORD = Layout(TimerRecord, size=52, upstream="rocketmq::TimerLog")


def slot_index(time_ms: int, tick_ms: int, slots: int) -> int:
    return time_ms // tick_ms % slots
