"""The run of `bmqctl browse` over a topic: messages of its queues, read by their offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from bmqctl.carrying.messages.ends import CannotBegin, Reach, RocketEnd, rocketmq_session
from bmqctl.carrying.messages.received import Received, Unreadable, of_topic
from bmqctl.client import ClientError
from bmqctl.client.rocketmq import StoredQueue

__all__ = ["Browsed", "browse_topic", "start_of"]

_PIECE: Final = 256


class Browsed(NamedTuple):
    """The messages that were shown, those that could not be decoded, and those that the queues hold."""

    shown: int
    unreadable: int
    held: int


async def browse_topic(
    end: RocketEnd,
    reach: Reach,
    offset: int | None,
    count: int,
    show: Callable[[list[Received]], Awaitable[None]],
    tell: Callable[[str], None],
) -> Browsed:
    """Show at most `count` messages of each queue, or of those with the number of the end. Raises `CannotBegin`."""
    if end.key or end.group:
        raise CannotBegin(f"{end}: no group gets what is browsed: behind ? there may be queue= only")
    shown = unreadable = 0
    try:
        async with rocketmq_session(end, reach) as session:
            queues = await session.stored_queues(end.topic)
            wanted = [each for each in queues if end.queue in (None, each.queue_id)]
            if not wanted:
                raise CannotBegin(f"{end}: has no queue {end.queue}: its brokers have {len(queues)} queues in all")
            for queue in wanted:
                at = start_of(queue.first, queue.end, offset)
                left = min(count, queue.end - at)
                while left > 0:
                    messages = await queue.read(at, min(left, _PIECE))
                    if not messages:
                        break
                    readable: list[Received] = []
                    for message in messages:
                        try:
                            readable.append(of_topic(message))
                        except Unreadable as fault:
                            unreadable += 1
                            tell(str(fault))
                    await show(readable)
                    shown += len(readable)
                    at = messages[-1].offset + 1
                    left -= len(messages)
    except (ClientError, ValueError) as fault:
        raise CannotBegin(str(fault)) from None
    return Browsed(shown, unreadable, _held(wanted))


def start_of(first: int, end: int, offset: int | None) -> int:
    """The offset to begin at: of the first message without `offset`; a negative one counts from the end."""
    if offset is None:
        return first
    return min(max(first, end + offset if offset < 0 else offset), end)


def _held(queues: list[StoredQueue]) -> int:
    return sum(each.end - each.first for each in queues)
