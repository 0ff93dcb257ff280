"""The run of `bmqctl browse`: messages of a topic's queues, read by their offsets, or of a queue's list."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.listing import Listing
from bmqctl.carrying.messages.received import Received, UnreadableMessage, of_topic
from bmqctl.client import ClientError
from bmqctl.client.rocketmq import Session, StoredQueue

__all__ = ["BrowseOptions", "Browsed", "FindOptions", "Shown", "browse_topic", "start_of"]

_PIECE: Final = 256
_FOREVER_MS: Final = (1 << 63) - 1


class Browsed(NamedTuple):
    """The numbers of messages that were shown, that could not be decoded, and that the queues have."""

    shown: int
    unreadable: int
    held: int


@dataclass(frozen=True, slots=True)
class BrowseOptions:
    """`count` messages from `offset` on; a negative offset counts from the end.

    Without `whole`, a queue's messages are listed without contents.
    """

    offset: int | None
    count: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FindOptions:
    """The wanted messages, at most `count`: with an id or a key, by storing time, or by an expression.

    Times are in [`since`, `until`). `expression` is in the system's own language.
    """

    count: int
    message_id: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    expression: str | None = None
    tags: str | None = None

    @property
    def since_ms(self) -> int:
        return 0 if self.since is None else max(0, round(self.since.timestamp() * 1000))

    @property
    def until_ms(self) -> int:
        return _FOREVER_MS if self.until is None else max(0, round(self.until.timestamp() * 1000))

    def has_time(self, text: str) -> bool:
        if self.since is None and self.until is None:
            return True
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)


class Shown(Protocol):
    """The output for messages: those of a queue as one list, those of a topic in portions."""

    def show_list(self, listing: Listing) -> None: ...

    async def show(self, messages: Sequence[Received]) -> None: ...

    def tell(self, text: str) -> None: ...

    async def end(self, is_cut: bool) -> None:
        """Write the end of the messages; `is_cut` if there should have been more."""
        ...


async def browse_topic(
    end: RocketEnd, opening: AbstractAsyncContextManager[Session], options: BrowseOptions, shown: Shown
) -> Browsed:
    """Show messages of each queue, or of the end's queue numbers. Raises `CannotBegin`."""
    try:
        browsed = await _browse(end, opening, options, shown)
    except (ClientError, ValueError) as fault:
        await shown.end(is_cut=True)
        raise CannotBegin(str(fault)) from None
    except CannotBegin:
        await shown.end(is_cut=True)
        raise
    await shown.end(is_cut=False)
    return browsed


async def _browse(
    end: RocketEnd, opening: AbstractAsyncContextManager[Session], options: BrowseOptions, shown: Shown
) -> Browsed:
    count = unreadable = 0
    async with opening as session:
        queues = await session.stored_queues(end.topic)
        wanted = [each for each in queues if end.queue in (None, each.queue_id)]
        if not wanted:
            raise CannotBegin(f"{end}: has no queue {end.queue}: its brokers have {len(queues)} queues in all")
        for queue in wanted:
            at = start_of(queue.first, queue.end, options.offset)
            left = min(options.count, queue.end - at)
            while left > 0:
                messages = await queue.read(at, min(left, _PIECE))
                if not messages:
                    break
                readable: list[Received] = []
                for message in messages:
                    try:
                        readable.append(of_topic(message))
                    except UnreadableMessage as fault:
                        unreadable += 1
                        shown.tell(str(fault))
                await shown.show(readable)
                count += len(readable)
                at = messages[-1].offset + 1
                left -= len(messages)
    return Browsed(count, unreadable, _held(wanted))


def start_of(first: int, end: int, offset: int | None) -> int:
    """The offset at which to begin: the first message's without `offset`; a negative one counts from the end."""
    if offset is None:
        return first
    return min(max(first, end + offset if offset < 0 else offset), end)


def _held(queues: list[StoredQueue]) -> int:
    return sum(each.end - each.first for each in queues)
