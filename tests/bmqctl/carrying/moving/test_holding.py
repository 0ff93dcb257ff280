"""The limits of a consumer that confirms nothing."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from bmqctl.carrying.moving.holding import Holding
from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from bmqctl.client.session import SessionLost


class Delivered:
    """A message of a queue."""

    def __init__(self, number: int, wire_size: int = 100) -> None:
        self.guid = number.to_bytes(16)
        self.wire_size = wire_size


class FakeQueue:
    def __init__(self) -> None:
        self.configured: list[StreamOptions] = []
        self.is_lost = False

    async def configure(self, options: StreamOptions) -> None:
        if self.is_lost:
            raise SessionLost("gone")
        self.configured.append(options)


def messages(begin: int, end: int, wire_size: int = 100) -> list[Any]:
    return [Delivered(number, wire_size) for number in range(begin, end)]


def holding(count_max: int | None = None) -> Holding:
    options = StreamOptions(subscriptions=(StreamSubscription("n > 1"),))
    return Holding(options, 10, 10_000, count_max, lambda text: None)


async def attended(held: Holding, queue: Any, steps: list[list[Any]]) -> None:
    """Settle messages step by step beside the attendance of their queue."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.attend, queue)
        for step in steps:
            held.settle(queue, step)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def limits(queue: FakeQueue) -> list[tuple[int, int]]:
    return [(each.max_unconfirmed_messages, each.max_unconfirmed_bytes) for each in queue.configured]


def test_limits_grow_with_what_was_copied() -> None:
    held, queue = holding(), FakeQueue()
    assert (held.options.max_unconfirmed_messages, held.options.max_unconfirmed_bytes) == (10, 10_000)
    trio.run(attended, held, queue, [messages(0, 4), messages(4, 5), messages(5, 9), messages(9, 12)])
    assert limits(queue) == [(15, 10_500), (22, 11_200)]
    assert queue.configured[0].subscriptions == (StreamSubscription("n > 1"),)


def test_large_messages_raise_the_limit_of_bytes() -> None:
    held, queue = holding(), FakeQueue()
    assert held.options.max_unconfirmed_bytes == 10_000
    trio.run(attended, held, queue, [messages(0, 1, 6_000)])
    assert limits(queue) == [(11, 16_000)]


def test_no_more_are_asked_for_than_are_wanted() -> None:
    held, queue = holding(count_max=12), FakeQueue()
    assert held.options.max_unconfirmed_messages == 10
    trio.run(attended, held, queue, [messages(0, 6), messages(6, 12)])
    assert [count for count, _ in limits(queue)] == [12]


def test_copied_messages_are_not_wanted_again() -> None:
    held, queue = holding(), FakeQueue()
    trio.run(attended, held, queue, [messages(0, 3)])
    assert [each.guid[-1] for each in held.wanted(messages(1, 5))] == [3, 4]


def test_a_lost_session_ends_the_attendance() -> None:
    held, queue = holding(), FakeQueue()
    assert held.options.max_unconfirmed_messages == 10
    queue.is_lost = True
    trio.run(attended, held, queue, [messages(0, 9)])
    assert queue.configured == []
