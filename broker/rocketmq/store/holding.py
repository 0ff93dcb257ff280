# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Messages of the log that may not be read yet: a broker with a controller delivers only confirmed messages.

They are entered into their queues once they are confirmed, in the log's order (source: ReputMessageService). Until then
they are kept here, in memory.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from broker.rocketmq.store.consume_queue import ConsumeQueue

__all__ = ["HeldBack", "HeldMessage"]


class HeldMessage(NamedTuple):
    """An unconfirmed record, and the entry of its queue; a record that is not consumed has none."""

    offset: int
    size: int
    stored_ms: int
    topic: str
    queue_id: int
    queue: ConsumeQueue | None
    queue_offset: int = 0
    tags_code: int = 0


class HeldBack:
    """The records of the log from `confirmed` on, in its order."""

    def __init__(self, confirmed: int) -> None:
        self.confirmed = confirmed
        self._messages: deque[HeldMessage] = deque()
        # The last message that is held back for each queue. Offsets of queues do not tell messages apart: a queue that
        # was removed at the master starts over.
        self._last: dict[ConsumeQueue, HeldMessage] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def next_offset(self, queue: ConsumeQueue) -> int:
        last = self._last.get(queue)
        return queue.end if last is None else last.queue_offset + 1

    def add(self, message: HeldMessage) -> None:
        self._messages.append(message)
        if message.queue is not None:
            self._last[message.queue] = message

    def begin(self, end: int) -> int:
        """Return the offset of the first record held back, or `end`, that of the log."""
        return self._messages[0].offset if self._messages else end

    def first(self) -> HeldMessage | None:
        """Return the first record, if it is confirmed as a whole."""
        messages = self._messages
        if messages and messages[0].offset + messages[0].size <= self.confirmed:
            return messages[0]
        return None

    def drop_first(self) -> None:
        message = self._messages.popleft()
        if message.queue is not None and self._last.get(message.queue) is message:
            del self._last[message.queue]

    def forget(self, queue: ConsumeQueue) -> None:
        """Enter no more messages into a removed queue."""
        if self._last.pop(queue, None) is not None:
            self._messages = deque(
                each._replace(queue=None) if each.queue is queue else each for each in self._messages
            )

    def cut(self, offset: int) -> None:
        self.confirmed = min(self.confirmed, offset)
        messages = self._messages
        while messages and messages[-1].offset >= offset:
            messages.pop()
        self._last = {each.queue: each for each in messages if each.queue is not None}
