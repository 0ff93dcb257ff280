"""The run of `bmqctl tail`: the messages of a queue or a topic as they come, each confirmed when shown."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import trio

from bmqctl.carrying.messages.framing import Frame, Framer
from bmqctl.carrying.messages.posting import opened
from bmqctl.carrying.messages.received import Received, Undecodable, UnreadableMessage
from bmqctl.client import ClientError
from bmqctl.common.nurseries import open_nursery

__all__ = ["Feed", "Outcome", "Sink", "Tail", "TailOptions", "tail"]

_UNCONFIRMED_MAX: Final = 1000
_PIECE: Final = 256

Tell = Callable[[str], None]


class TailOptions(NamedTuple):
    """`expression` is in the system's own language; `tags`, `from_start` and `since` are for topics.

    `count_max` is the number of messages to show, None for all; the run ends after `idle_s` without one.
    """

    frame: Frame
    expression: str | None = None
    tags: str | None = None
    from_start: bool = False
    count_max: int | None = None
    idle_s: float | None = None
    since: datetime | None = None

    @property
    def unconfirmed_max(self) -> int:
        """The limit of unconfirmed messages: low if few are wanted."""
        return min(_UNCONFIRMED_MAX, self.count_max or _UNCONFIRMED_MAX)


@dataclass(slots=True)
class Outcome:
    """The result of a run. `ended_by` is the reason unless a signal, its reader, or its options ended it."""

    shown: int = 0
    unreadable: int = 0
    is_interrupted: bool = False
    has_reader_left: bool = False
    ended_by: str = ""


class Feed(Protocol):
    """A source of messages over time."""

    async def receive(self, count_max: int) -> Sequence[Any]:
        """Wait for messages, and return at most `count_max`; none when there will be no more."""
        ...

    def read(self, message: Any) -> Received: ...

    def confirm(self, messages: Sequence[Any]) -> None: ...

    def leave(self, message: Any) -> bool:
        """Leave a message that was not shown; return True if it stays unconfirmed."""
        ...


class Sink(Protocol):
    """The place where messages are shown."""

    async def write(self, data: bytes) -> None:
        """Write all bytes. Raises `BrokenPipeError` if the reader has gone."""
        ...

    async def until_left(self) -> None:
        """Wait until the reader has gone."""
        ...


async def tail(opening: AbstractAsyncContextManager[Feed], options: TailOptions, output: Sink, tell: Tell) -> Outcome:
    """Show messages until `options` or a signal ends the run. Raises `CannotBegin`.

    `tell` reports messages that cannot be shown.
    """
    run = Tail(options, output, tell)
    async with open_nursery() as nursery:
        nursery.start_soon(run.watch_signals)
        nursery.start_soon(run.watch_reader)
        with run.scope:
            try:
                async with opened(opening) as feed:
                    await run.carry_out(feed)
            except BrokenPipeError:
                run.outcome.has_reader_left = True
            except ClientError as fault:
                run.outcome.ended_by = str(fault)
            except OSError as fault:
                run.outcome.ended_by = f"cannot write the messages: {fault.strerror}"
    return run.outcome


class Tail:
    """A run over a feed."""

    def __init__(self, options: TailOptions, output: Sink, tell: Tell) -> None:
        self.outcome = Outcome()
        self.scope = trio.CancelScope()
        self._options = options
        self._output = output
        self._tell = tell
        self._framer = Framer(options.frame)
        self._has_begun = False
        self._left_room = options.unconfirmed_max
        self._waiting = trio.CancelScope()

    async def watch_signals(self) -> None:
        """End the run after the current message at the first signal, and immediately at the second."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                if self.outcome.is_interrupted or not self._has_begun:
                    self.scope.cancel()
                self.outcome.is_interrupted = True
                self._waiting.cancel()

    async def watch_reader(self) -> None:
        await self._output.until_left()
        self.outcome.has_reader_left = True
        self._waiting.cancel()

    async def carry_out(self, feed: Feed) -> None:
        self._has_begun = True
        await self._write(self._framer.begin())
        try:
            while (left := self._left()) and (messages := await self._next(feed, left)):
                await self._show(feed, messages)
                if not self._left_room:
                    self.outcome.ended_by = (
                        "no more come: as many as may be unconfirmed have payloads that are not decoded"
                    )
                    break
        except ClientError:
            await self._write(self._framer.end())
            raise
        if not self.outcome.has_reader_left:
            await self._write(self._framer.end())

    async def _write(self, data: bytes) -> None:
        if data:
            await self._output.write(data)

    def _left(self) -> int:
        """The number of messages to ask for; 0 if the run is over."""
        if self.outcome.is_interrupted or self.outcome.has_reader_left:
            return 0
        return _PIECE if self._options.count_max is None else min(_PIECE, self._options.count_max - self.outcome.shown)

    async def _next(self, feed: Feed, count_max: int) -> Sequence[Any]:
        idle_s = self._options.idle_s
        self._waiting = trio.CancelScope() if idle_s is None else trio.move_on_after(idle_s)
        with self._waiting:
            return await feed.receive(count_max)
        return ()

    async def _show(self, feed: Feed, messages: Sequence[Any]) -> None:
        lines: list[bytes] = []
        shown: list[Any] = []
        for message in messages:
            try:
                lines.append(self._options.frame.form(feed.read(message)))
            except Undecodable as fault:
                # The message may be sound and --decode wrong: that must not delay it or use up its deliveries.
                self._left_room -= feed.leave(message)
                self.outcome.unreadable += 1
                self._tell(str(fault))
            except UnreadableMessage as fault:
                message.reject()
                self.outcome.unreadable += 1
                self._tell(str(fault))
            else:
                shown.append(message)
        await self._write(self._framer.join(lines))
        feed.confirm(shown)
        self.outcome.shown += len(shown)
