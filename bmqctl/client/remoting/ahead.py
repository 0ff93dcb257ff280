"""Pulls of one queue, several at a time.

An answer has few messages, by default 32 in a broker's memory, so pulling answer by answer is as slow as the round
trip. Offsets in a queue are consecutive: the next pulls are sent before earlier ones are answered, as long as there are
more messages. A pull with an unexpected answer has the later ones repeated.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import trio

from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.link import NoAnswer
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.frame import Frame

__all__ = ["PullsAhead"]

DEPTH: Final = 8
# A broker's default number of messages in an answer.
USUAL: Final = 32


@dataclass(slots=True, eq=False)
class _Asked:
    """A pull: its first offset, and the number of messages that the next pull assumes."""

    offset: int
    count: int
    answer: Frame | str | None = None
    answered: trio.Event = field(default_factory=trio.Event)

    def take(self, answer: Frame | str) -> None:
        self.answer = answer
        self.answered.set()


class PullsAhead:
    """The messages of a queue from its puller's offset on, by up to `depth` pulls at a time."""

    def __init__(self, puller: QueuePuller, depth: int = DEPTH) -> None:
        self._puller = puller
        self._depth = depth
        self._asked: deque[_Asked] = deque()
        self._each = USUAL
        self._end = 0

    async def next_records(self, messages_max: int) -> list[Record]:
        """Wait for the next messages; none if none come for a while. The puller's offset is then after them.

        There may be more than `messages_max` if an earlier call asked for more. Raises what the puller does.
        """
        before = self._puller.offset
        self._ask(messages_max)
        first = self._asked[0]
        await first.answered.wait()
        found: list[Record] = []
        while self._asked and self._asked[0].answer is not None:
            found += self._take(self._asked.popleft())
        if not found:
            await self._puller.rest_if_idle(before)
        return found

    def _ask(self, messages_max: int) -> None:
        if not self._asked:
            self._send(self._puller.offset, max(messages_max, 1), is_held=True)
        while len(self._asked) < self._depth and self._each * (len(self._asked) + 1) <= messages_max:
            begin = self._asked[-1].offset + self._asked[-1].count
            if begin + self._each > self._end:
                return
            self._send(begin, self._each, is_held=False)

    def _send(self, offset: int, messages_max: int, *, is_held: bool) -> None:
        asked = _Asked(offset, min(self._each, messages_max))
        self._puller.ask_records(offset, messages_max, asked.take, is_held=is_held)
        self._asked.append(asked)

    def _take(self, asked: _Asked) -> list[Record]:
        answer = asked.answer
        if not isinstance(answer, Frame):
            raise NoAnswer(str(answer))
        records, self._end = self._puller.take_records(answer)
        moved = self._puller.offset - asked.offset
        if moved != asked.count:
            self._asked.clear()
            if moved > asked.count or 0 < moved < self._end - asked.offset:
                self._each = moved
        return records
