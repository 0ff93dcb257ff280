"""Posts of the client library: their answers, and batches."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.lowlevel import checkpoint

from bmqctl.client.errors import Ack, BatchFailed, PostFailed, PostRefused, PostUncertain
from bmqctl.client.protocol.message import Properties
from formats.bmq.codes import AckStatus

if TYPE_CHECKING:
    from bmqctl.client.queue import Queue

__all__ = ["Batch", "Posted"]

log = logging.getLogger("bmqctl.client")

# Messages and bytes posted between two turns of the writer: they share an event, and other tasks get their turns.
_PIECE_COUNT: Final = 128
_PIECE_SIZE: Final = 1 << 18


class Posted:
    """A message handed to the session; awaiting it returns its `Ack`.

    Awaiting it raises `PostRefused` or `PostUncertain` if the message was not acknowledged. It may be awaited more than
    once.
    """

    __slots__ = ("_ack", "_event", "_is_observed", "_queue", "guid")

    def __init__(self, queue: Queue) -> None:
        self.guid = b""
        self._queue = queue
        self._ack: Ack | None = None
        self._event: anyio.Event | None = None
        self._is_observed = False

    @property
    def ack(self) -> Ack | None:
        """The answer, whichever it is; None while there is none."""
        self._is_observed = True
        return self._ack

    def __await__(self) -> Generator[Any, Any, Ack]:
        return self._wait().__await__()

    async def _wait(self) -> Ack:
        self._is_observed = True
        if self._ack is None:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        assert self._ack is not None
        if self._ack.status is not AckStatus.SUCCESS:
            raise _failure(self._queue, self._ack)
        return self._ack

    def answered(self, ack: Ack) -> None:
        """Take the answer; called by the session."""
        self._ack = ack
        if self._event is not None:
            self._event.set()
        elif ack.status is not AckStatus.SUCCESS and not self._is_observed:
            log.warning("%s", _failure(self._queue, ack))


def _failure(queue: Queue, ack: Ack) -> PostFailed:
    if ack.status is AckStatus.UNKNOWN:
        return PostUncertain(f"{queue}: no answer to the post of message {ack.guid.hex().upper()}", ack)
    return PostRefused(f"{queue}: message {ack.guid.hex().upper()} was refused: {ack.status.name}", ack)


class Batch:
    """Posts of many messages at once, made by `Queue.batch`.

    Leaving the block waits until all are answered, and raises `BatchFailed` if some were not acknowledged.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._piece_count = 0
        self._piece_size = 0
        self._done = anyio.Event()
        self._is_waiting = False
        self.posted = 0
        self.acked = 0
        self.failures: list[Ack] = []

    async def post(self, payload: bytes, properties: Properties | None = None, *, compress: bool = False) -> bytes:
        """Post a message as soon as there is room, and return its GUID without waiting for its answer."""
        if self._piece_count >= _PIECE_COUNT or self._piece_size >= _PIECE_SIZE:
            self._piece_count = self._piece_size = 0
            await checkpoint()
        await self._queue.await_room()
        guid = self._queue.hand_over(payload, properties, compress, self)
        self._queue.wake()
        self.posted += 1
        self._piece_count += 1
        self._piece_size += len(payload)
        return guid

    async def post_all(self, payloads: Iterable[bytes], *, compress: bool = False) -> None:
        """Post messages without properties, as `post` does for one."""
        room, hand_over, wake = self._queue.room, self._queue.hand_over, self._queue.wake
        left = 0
        for payload in payloads:
            if left <= 0 or self._piece_size >= _PIECE_SIZE:
                self._piece_size = 0
                await checkpoint()
                await self._queue.await_room()
                left = min(room.left(), _PIECE_COUNT)
            hand_over(payload, None, compress, self)
            wake()
            self.posted += 1
            self._piece_size += len(payload)
            left -= 1

    def answered(self, ack: Ack) -> None:
        """Take an answer; called by the session."""
        if ack.status is AckStatus.SUCCESS:
            self.acked += 1
        else:
            self.failures.append(ack)
        if self._is_waiting and self.unanswered == 0:
            self._done.set()

    @property
    def unanswered(self) -> int:
        return self.posted - self.acked - len(self.failures)

    async def settled(self) -> None:
        """Wait until all messages posted so far are answered. Raises `BatchFailed` if some were not acknowledged."""
        while self.unanswered:
            self._is_waiting = True
            self._done = anyio.Event()
            await self._done.wait()
        self._is_waiting = False
        if self.failures:
            kinds = sorted({ack.status.name for ack in self.failures})
            text = f"{self._queue}: {len(self.failures)} of {self.posted} messages were not acknowledged"
            raise BatchFailed(f"{text} ({', '.join(kinds)})", self.failures)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        if fault is None:
            await self.settled()
