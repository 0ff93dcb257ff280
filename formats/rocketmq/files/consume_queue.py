"""Consume queue entries: 20 bytes for each message of a queue, in the queue's order (source: ConsumeQueue).

The entry of queue offset N is at byte 20 N, counted over all files of the queue. `FILLER` fills the first file of a
queue that does not begin at 0.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, i32, i64

__all__ = ["CONSUME_QUEUE_ENTRY", "FILLER", "ConsumeQueueEntry"]


class ConsumeQueueEntry(NamedTuple):
    """A message's place in the commit log, and the length of its record.

    `tags_code` is the hash of the message's tag (`java.string_hash`), 0 without one; for messages of the delay topic
    it is the time at which they are due, in milliseconds since the epoch. A size of 0 ends the queue.

    rocketmq::ConsumeQueue, 20 bytes:

         0 | physical_offset 64 |
         8 | size 32            |
        12 | tags_code 64       |
    """

    physical_offset: Annotated[int, i64, "Where the message's record begins in the commit log."]
    size: Annotated[int, i32, "Bytes of that record; 0 ends the queue."]
    tags_code: Annotated[
        int, i64, "Hash of the message's tag; for messages of the delay topic the time at which they are due."
    ]


CONSUME_QUEUE_ENTRY = Layout(ConsumeQueueEntry, size=20, upstream="rocketmq::ConsumeQueue")
FILLER = ConsumeQueueEntry(0, 0x7FFFFFFF, 0)
