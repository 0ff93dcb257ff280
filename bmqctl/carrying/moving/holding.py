"""The treatment of a queue's messages being copied: none is confirmed, and all go back when the consumer leaves."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio

from bmqctl.carrying.bridge.carrying import Tell
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import StreamOptions
from bmqctl.client.protocol.message import Message
from bmqctl.client.session import Queue, RequestFailed, SessionLost

__all__ = ["Holding"]

_COUNT_MAX: Final = (1 << 31) - 1
_BYTES_MAX: Final = 1 << 62


class Holding:
    """Leaves messages unconfirmed.

    The consumer's limits grow with the copied messages: the broker delivers at most `window` messages, and
    `window_bytes`, beyond these. `count_max` is the highest limit.
    """

    def __init__(
        self, options: StreamOptions, window: int, window_bytes: int, count_max: int | None, tell: Tell
    ) -> None:
        self._options = options
        self._window = window
        self._window_bytes = window_bytes
        self._count_max = min(count_max or _COUNT_MAX, _COUNT_MAX)
        self._tell = tell
        self._copied: set[bytes] = set()
        self._size = 0
        self._granted = self._granted_bytes = 0
        self._wish = trio.Event()

    @property
    def options(self) -> StreamOptions:
        self._granted = min(len(self._copied) + self._window, self._count_max)
        self._granted_bytes = min(self._size + self._window_bytes, _BYTES_MAX)
        return replace(self._options, max_unconfirmed_messages=self._granted, max_unconfirmed_bytes=self._granted_bytes)

    def wanted(self, messages: list[Message]) -> list[Message]:
        """The messages not copied yet: after a lost connection all are delivered again."""
        return [message for message in messages if message.guid not in self._copied]

    def settle(self, queue: Queue, messages: list[Message]) -> None:
        """Note copied messages, and have the limits raised when half of the allowance is used."""
        self._copied.update(message.guid for message in messages)
        self._size += sum(message.wire_size for message in messages)
        is_half = len(self._copied) + self._window // 2 >= self._granted
        if (is_half and self._granted < self._count_max) or self._size + self._window_bytes // 2 >= self._granted_bytes:
            self._wish.set()

    async def attend(self, queue: Queue) -> None:
        with suppress(SessionLost, Unusable):
            while True:
                await self._wish.wait()
                self._wish = trio.Event()
                try:
                    await queue.configure(self.options)
                except RequestFailed as fault:
                    self._tell(str(fault))
                    return
