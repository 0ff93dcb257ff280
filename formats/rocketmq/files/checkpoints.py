"""The two checkpoint files, 4,096 bytes each, of which only the front is used (source: StoreCheckpoint,
TimerCheckpoint).
"""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, i64

__all__ = ["CHECKPOINT_BYTES", "STORE_CHECKPOINT", "TIMER_CHECKPOINT", "StoreCheckpoint", "TimerCheckpoint"]

CHECKPOINT_BYTES = 4096


class StoreCheckpoint(NamedTuple):
    """`checkpoint`: the storing times up to which the commit log, consume queues and index are on the disk.

    Times are in milliseconds since the epoch. The two offsets are used with replicas.

    rocketmq::StoreCheckpoint, 40 bytes:

         0 | commit_log_ms 64         |
         8 | consume_queue_ms 64      |
        16 | index_ms 64              |
        24 | master_flushed_offset 64 |
        32 | confirm_offset 64        |
    """

    commit_log_ms: Annotated[int, i64, "The commit log is on the disk up to messages stored at this time."]
    consume_queue_ms: Annotated[int, i64, "So are the consume queues."]
    index_ms: Annotated[int, i64, "So is the index."]
    master_flushed_offset: Annotated[int, i64, "With replicas: up to where the master's commit log was on its disk."]
    confirm_offset: Annotated[int, i64, "With replicas: up to where the commit log is confirmed."]


class TimerCheckpoint(NamedTuple):
    """`config/timercheck`: the progress of timer messages into the wheel and out of it.

    `queue_offset` counts in the consume queue of the timer topic. The last three fields are a data version.

    rocketmq::TimerCheckpoint, 56 bytes:

         0 | last_read_ms 64        |
         8 | log_flushed 64         |
        16 | queue_offset 64        |
        24 | master_queue_offset 64 |
        32 | state_version 64       |
        40 | version_ms 64          |
        48 | version_counter 64     |
    """

    last_read_ms: Annotated[int, i64, "Up to this time timer messages were given out."]
    log_flushed: Annotated[int, i64, "Up to this position the timer log is on the disk."]
    queue_offset: Annotated[int, i64, "The entry of the timer topic's consume queue that is taken in next."]
    master_queue_offset: Annotated[int, i64, "The same at the master."]
    state_version: Annotated[int, i64, "Data version: the state machine's."]
    version_ms: Annotated[int, i64, "Data version: when it was made."]
    version_counter: Annotated[int, i64, "Data version: its number."]


STORE_CHECKPOINT = Layout(StoreCheckpoint, size=40, upstream="rocketmq::StoreCheckpoint")
TIMER_CHECKPOINT = Layout(TimerCheckpoint, size=56, upstream="rocketmq::TimerCheckpoint")
