"""The run of `bmqctl tail`: the messages of a queue or a topic as they come, each confirmed when it is shown."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import trio

from bmqctl.carrying.messages.ends import BlazingEnd, CannotBegin, End, Reach, blazingmq_session, rocketmq_session
from bmqctl.carrying.messages.framing import Frame, Framer
from bmqctl.carrying.messages.received import Received, Undecodable, Unreadable, of_queue, of_topic
from bmqctl.client import ClientError, Message, Queue, Subscription
from bmqctl.client.rocketmq import Consumer
from bmqctl.client.rocketmq import Message as RocketMessage
from bmqctl.common.nurseries import open_nursery

__all__ = ["Feed", "Outcome", "Sink", "Tail", "TailOptions", "tail"]

# Of a topic without a group: its consumers see all messages, and commit nothing.
_OWN_GROUP: Final = "bmqctl-tail"
_UNCONFIRMED_MAX: Final = 1000
# Messages that are shown at once.
_PIECE: Final = 256

Tell = Callable[[str], None]


class TailOptions(NamedTuple):
    """`expression` is in the system's own language; `tags` and `from_start` are for topics.

    `count_max` is the number of messages to show, None for all that come; the run ends when none has come for `idle_s`.
    """

    frame: Frame
    expression: str | None = None
    tags: str | None = None
    from_start: bool = False
    count_max: int | None = None
    idle_s: float | None = None


@dataclass(slots=True)
class Outcome:
    """The end of a run. `ended_by` says why it ended, if neither a signal, nor its reader, nor its options ended it."""

    shown: int = 0
    unreadable: int = 0
    is_interrupted: bool = False
    has_reader_left: bool = False
    ended_by: str = ""


class Feed(Protocol):
    """Messages that come."""

    async def receive(self, count_max: int) -> Sequence[Any]:
        """Wait for messages, and return at most so many; none when there will be no more."""
        ...

    def read(self, message: Any) -> Received:
        """Decode a message. Raises `Unreadable`."""
        ...

    def confirm(self, messages: Sequence[Any]) -> None:
        """Confirm messages that were shown."""
        ...

    def leave(self, message: Any) -> bool:
        """Leave a message that was not shown where it is; return True if it stays among the unconfirmed ones."""
        ...


class _QueueFeed:
    """A queue of BlazingMQ."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.read = of_queue

    async def receive(self, count_max: int) -> Sequence[Message]:
        return await self._queue.receive(count_max)

    def confirm(self, messages: Sequence[Message]) -> None:
        self._queue.confirm_all(messages)

    def leave(self, message: Message) -> bool:
        return True


class _TopicFeed:
    """A topic of RocketMQ."""

    def __init__(self, consumer: Consumer, commits: bool) -> None:
        self._consumer = consumer
        self._commits = commits
        self.read = of_topic

    async def receive(self, count_max: int) -> Sequence[RocketMessage]:
        return await self._consumer.receive(count_max)

    def confirm(self, messages: Sequence[RocketMessage]) -> None:
        for message in messages:
            message.confirm()

    def leave(self, message: RocketMessage) -> bool:
        if not self._commits:
            message.confirm()
        return self._commits


def _check(end: End, options: TailOptions) -> None:
    """Raise `CannotBegin` for options that are the other system's."""
    if isinstance(end, BlazingEnd):
        if options.tags is not None or options.from_start:
            raise CannotBegin("--tags and --from-start are for topics of RocketMQ")
    elif end.queue is not None or end.key:
        raise CannotBegin(f"{end}: all queues of a topic are followed: behind ? there may be group= only")
    elif options.tags is not None and options.expression is not None:
        raise CannotBegin("--tags or --expression, not both")


def _unconfirmed_max(options: TailOptions) -> int:
    """The number of messages that may be unconfirmed; few are wanted if few are to be shown."""
    return min(_UNCONFIRMED_MAX, options.count_max or _UNCONFIRMED_MAX)


@asynccontextmanager
async def _open(end: End, reach: Reach, options: TailOptions) -> AsyncIterator[Feed]:
    """Open a queue or a topic for consuming. Raises `CannotBegin`."""
    has_begun = False
    unconfirmed_max = _unconfirmed_max(options)
    try:
        if isinstance(end, BlazingEnd):
            async with blazingmq_session(end, reach) as session:
                wanted = [] if options.expression is None else [Subscription(options.expression)]
                queue = await session.open(
                    end.uri, read=True, max_unconfirmed_messages=unconfirmed_max, subscriptions=wanted
                )
                has_begun = True
                yield _QueueFeed(queue)
        else:
            async with rocketmq_session(end, reach) as other:
                consumer = await other.consume(
                    end.topic,
                    end.group or _OWN_GROUP,
                    tags=options.tags or "*",
                    sql=options.expression,
                    from_start=options.from_start,
                    broadcast=not end.group,
                    max_unconfirmed_messages=unconfirmed_max,
                )
                has_begun = True
                yield _TopicFeed(consumer, bool(end.group))
    except (ClientError, ValueError) as fault:
        if has_begun:
            raise
        raise CannotBegin(str(fault)) from None


class Sink(Protocol):
    """The place where messages are shown."""

    async def write(self, data: bytes) -> None:
        """Write all bytes. Raises `BrokenPipeError` if nobody reads them any more."""
        ...

    async def until_left(self) -> None:
        """Wait until nobody reads any more."""
        ...


async def tail(end: End, reach: Reach, options: TailOptions, output: Sink, tell: Tell) -> Outcome:
    """Show messages until they are enough, or a signal comes. Raises `CannotBegin`.

    `tell` is given what cannot be shown.
    """
    _check(end, options)
    run = Tail(options, output, tell)
    async with open_nursery() as nursery:
        nursery.start_soon(run.watch_signals)
        nursery.start_soon(run.watch_reader)
        with run.scope:
            try:
                async with _open(end, reach, options) as feed:
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
        self._left_room = _unconfirmed_max(options)
        self._waiting = trio.CancelScope()

    async def watch_signals(self) -> None:
        """End the run behind what is being shown at the first signal, and at once at the second."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                if self.outcome.is_interrupted or not self._has_begun:
                    self.scope.cancel()
                self.outcome.is_interrupted = True
                self._waiting.cancel()

    async def watch_reader(self) -> None:
        """End the run when nobody reads any more."""
        await self._output.until_left()
        self.outcome.has_reader_left = True
        self._waiting.cancel()

    async def carry_out(self, feed: Feed) -> None:
        """Show and confirm messages."""
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
                # It may be as good as any, and what was asked for wrong: nobody is to get it later, or less often.
                self._left_room -= feed.leave(message)
                self.outcome.unreadable += 1
                self._tell(str(fault))
            except Unreadable as fault:
                message.reject()
                self.outcome.unreadable += 1
                self._tell(str(fault))
            else:
                shown.append(message)
        await self._write(self._framer.join(lines))
        feed.confirm(shown)
        self.outcome.shown += len(shown)
