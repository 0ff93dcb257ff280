# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Runs: consecutive records that a store appends to its log, and enters into queues and index, together.

One record is a run of one. All differences between records are decided when a run is built: of messages in
`writing.py`, and of another broker's log in `copying.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Protocol

from broker.rocketmq.store.consume_queue import ConsumeQueue, pack_entry, read_entries
from broker.rocketmq.store.holding import HeldMessage
from formats.rocketmq.files.index import IndexKeys
from formats.schema import Buffer

__all__ = ["Keys", "QueuePart", "Queues", "Run"]

# Keys of the index: the hash, message offset and storing time of each; or all of them in columns.
Keys = list[tuple[int, int, int]] | IndexKeys


class Queues(Protocol):
    """The queues that a run is for; see `MessageStore`."""

    def open_queue(self, topic: str, queue_id: int) -> ConsumeQueue: ...
    def next_offset(self, queue: ConsumeQueue) -> int: ...


class QueuePart:
    """The records of a run in one queue: `count` from its offset `first` on, `size` bytes of the log.

    `entries` are the queue's entries, all in one file with room for `most` from `first` on. `times` are their storing
    times; None if each has the run's. Without a queue, the records are not consumed.
    """

    __slots__ = ("count", "entries", "first", "most", "queue", "queue_id", "size", "times", "topic")

    def __init__(self, topic: str, queue_id: int, queue: ConsumeQueue | None, first: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue = queue
        self.first = first
        self.most: int = 1 << 62 if queue is None else queue.file_end(first) - first
        self.count = 0
        self.size = 0
        self.entries: list[bytes] = []
        self.times: Sequence[int] | None = None

    def add(self, offset: int, size: int, tags_code: int) -> None:
        self.entries.append(pack_entry(offset, size, tags_code))
        self.count += 1
        self.size += size

    def messages(self, stored_ms: int) -> list[HeldMessage]:
        times: Iterable[int] = repeat(stored_ms) if self.times is None else self.times
        place = self.topic, self.queue_id, self.queue
        return [
            HeldMessage(offset, size, ms, *place, self.first + number, tags_code)
            for number, ((offset, size, tags_code), ms) in enumerate(
                zip(read_entries(b"".join(self.entries)), times, strict=False)
            )
        ]


class Run:
    """The records `data`, all in one file of a log, at `offset`: the log's end, or the start of its next file.

    `parts` has them by queue. `stored_ms` is the storing time of the last one.
    """

    __slots__ = ("data", "end", "keys", "offset", "parts", "stored_ms")

    def __init__(self, offset: int, data: Buffer, parts: list[QueuePart], keys: Keys, stored_ms: int) -> None:
        self.offset = offset
        self.end = offset + len(data)
        self.data = data
        self.parts = parts
        self.keys: Keys = keys
        self.stored_ms = stored_ms

    def messages(self) -> list[HeldMessage]:
        found = [message for part in self.parts for message in part.messages(self.stored_ms)]
        return sorted(found, key=attrgetter("offset"))
