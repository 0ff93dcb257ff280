"""Posting of many messages, each until it is accepted or refused, with limited unanswered posts and patience.

Posts that a full queue refuses are repeated in order, after a pause in which nothing else is posted.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio

from bmqctl.client.protocol.events import Ack
from formats.bmq.wire.ack import AckStatus

__all__ = ["NO_ROOM", "Posting", "PostingOptions"]

NO_ROOM: Final = frozenset({AckStatus.LIMIT_MESSAGES, AckStatus.LIMIT_BYTES, AckStatus.NOT_READY})
_BACKOFF_MIN_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
_WATCH_INTERVAL_S: Final = 1.0
_PIECE_COUNT: Final = 64
_PIECE_SIZE: Final = 1 << 18

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PostingOptions:
    """`window` limits unanswered posts; `patience_s` limits the time in which no post is accepted."""

    window: int = 4096
    patience_s: float = 30.0


class Posting(Generic[T]):
    """Posts items through `post`, which gets an item and a correlation for its message.

    `post` returns the bytes posted, None for an item with nothing to post. `on_answer` gets every answer: an item
    refused for lack of room has several. The session calls `take_acks`; `drain` is the session's.
    """

    def __init__(
        self,
        options: PostingOptions,
        post: Callable[[T, int], int | None],
        on_answer: Callable[[T, AckStatus], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._options = options
        self._post = post
        self._on_answer = on_answer
        self._drain = drain
        self._next = 0
        self._under_way: dict[int, T] = {}
        self._again: dict[int, T] = {}
        self._refusal: AckStatus | None = None
        self._backoff_s = _BACKOFF_MIN_S
        self._heard = trio.Event()
        self._last_taken = time.monotonic()
        self._piece_count = 0
        self._piece_size = 0

    async def put(self, item: T) -> None:
        """Post `item` as soon as there is room, and no earlier item must precede it."""
        await self._drain_pieces()
        while True:
            if len(self._under_way) >= self._options.window:
                await self._heard.wait()
            elif self._again:
                await self._post_again()
            else:
                break
        if not self._under_way:
            self._last_taken = time.monotonic()
        self._send(self._next, item)
        self._next += 1

    async def finish(self) -> None:
        while self._under_way or self._again:
            if self._again:
                await self._post_again()
            else:
                await self._heard.wait()

    async def settle(self) -> None:
        while self._under_way:
            await self._heard.wait()

    async def watch(self) -> str:
        """Wait until no post has succeeded for too long although some are pending; return the likely reason."""
        patience_s = self._options.patience_s
        while True:
            await trio.sleep(min(_WATCH_INTERVAL_S, patience_s / 4))
            if (self._under_way or self._again) and time.monotonic() - self._last_taken > patience_s:
                refused = f"the broker refuses ({self._refusal.name})" if self._again and self._refusal else None
                return f"{refused or 'the broker does not answer'}, for {patience_s:g} s"

    def take_acks(self, acks: list[Ack]) -> None:
        for status, _, number, _ in acks:
            if number not in self._under_way:
                continue
            item = self._under_way.pop(number)
            if status is AckStatus.SUCCESS:
                self._last_taken = time.monotonic()
                self._backoff_s = _BACKOFF_MIN_S
            elif status in NO_ROOM:
                self._refusal = status
                self._again[number] = item
            self._on_answer(item, status)
        self._heard.set()
        self._heard = trio.Event()

    async def _post_again(self) -> None:
        await self.settle()
        await trio.sleep(self._backoff_s)
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_MAX_S)
        waiting = sorted(self._again.items())
        self._again = {}
        for at, (number, item) in enumerate(waiting):
            while len(self._under_way) >= self._options.window:
                await self._heard.wait()
            await self._drain_pieces()
            if self._again:
                self._again.update(waiting[at:])
                return
            self._send(number, item)

    def _send(self, number: int, item: T) -> None:
        # Noted before posting: `post` may raise.
        self._under_way[number] = item
        size = self._post(item, number)
        if size is None:
            del self._under_way[number]
        self._piece_count += 1
        self._piece_size += size or 0

    async def _drain_pieces(self) -> None:
        # A turn of the session's writer for each message would cost more than the message.
        if self._piece_count >= _PIECE_COUNT or self._piece_size >= _PIECE_SIZE:
            self._piece_count = self._piece_size = 0
            await self._drain()
