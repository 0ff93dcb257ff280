"""Counts that clients open with, and what a hop tells its upstream of them: never more than the wire carries."""

from __future__ import annotations

import random

import pytest

from broker.bmq.links.requests import Requests
from broker.bmq.relay.handles.handle_counts import COUNT_MAX, Count
from broker.bmq.relay.relay_links import RelayLinks
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control.messages import Disconnect, OpenQueueResponse
from tests.broker.bmq.relay.hop_rig import DOMAINS, QUEUE, Links, World
from tests.broker.bmq.rig import ACK, READ, WRITE, Wanted, guid


@pytest.mark.parametrize("seed", range(50))
def test_a_count_follows_its_clients(seed: int) -> None:
    """The upstream's counts equal the clients' after any opens, refusals and closes, up to the maximum."""
    rng = random.Random(seed)
    count, told = Count(), 0
    held: list[int] = []
    asked: list[tuple[int, int]] = []
    for _ in range(200):
        match rng.choice(("ask", "answer", "close", "lose")):
            case "ask":
                number = rng.choice((1, 5, COUNT_MAX // 2, COUNT_MAX))
                more = count.ask(number)
                if more:
                    asked.append((number, more))
                else:
                    # Requests that need nothing from the upstream wait for its pending answer.
                    count.answered(number, more, granted=not asked)
                    held += [] if asked else [number]
            case "answer" if asked:
                number, more = asked.pop(rng.randrange(len(asked)))
                granted = rng.random() < 0.7
                count.answered(number, more, granted=granted)
                if granted:
                    held.append(number)
                    told += more
            case "close" if held:
                told -= count.give_back(held.pop(rng.randrange(len(held))))
            case "lose" if rng.random() < 0.1:
                asked.clear()
                count.forget()
                told = count.tell()
        assert count.open == sum(held)
        assert count.told == told
        assert 0 <= told <= min(COUNT_MAX, sum(held))
        assert bool(told) is bool(held)


@pytest.fixture
def world() -> World:
    world = World(DOMAINS)
    world.make_primary(0)
    return world


def test_many_who_open_with_the_highest_count(world: World) -> None:
    """The sum of the counts exceeds a request's range: the relay opens with the maximum, at the next primary too."""
    first, second, honest = world.client(1), world.client(1), world.client(1)
    for client in (first, second):
        answer = client.try_open(1, QUEUE, READ | WRITE, read_count=COUNT_MAX, write_count=COUNT_MAX)
        assert isinstance(answer, OpenQueueResponse)
        client.subscribe(1, Wanted(count=COUNT_MAX))
    honest.open(1, QUEUE, WRITE | ACK)
    root = world.nodes[0].rig.node.queues[QUEUE]
    assert root.writers == COUNT_MAX
    world.part(0, 1)
    world.join(0, 1)
    world.nodes[1].queues.primary_active(0, 0, True)
    world.run()
    assert root.writers == COUNT_MAX
    first.drop()
    honest.put(1, guid(1), b"payload")
    world.run()
    assert [push.payload for push in second.pushes()] == [b"payload"]
    second.drop()
    assert root.writers == 1
    assert not root.apps["__default"].streams
    honest.drop()
    assert not root.is_open


def test_requests_are_numbered_anew_when_numbers_are_used_up() -> None:
    links = Links(0, (1,), up={1})
    requests = Requests(links, Now(0, 0), Timers())
    outcomes: list[object] = []
    first = requests.send(1, Disconnect(), outcomes.append)
    requests._last = COUNT_MAX - 1
    assert [requests.send(1, Disconnect(), outcomes.append) for _ in range(2)] == [COUNT_MAX, first + 1]
    assert not outcomes


def test_queues_are_numbered_anew_when_numbers_are_used_up(world: World) -> None:
    client = world.client(1)
    client.open(1, QUEUE, WRITE | ACK)
    hops = world.nodes[1].queues._relay_links
    assert isinstance(hops, RelayLinks)
    (taken,) = hops.relays
    hops._last_queue_id = COUNT_MAX - 1
    assert [hops.next_queue_id() for _ in range(2)] == [COUNT_MAX, taken + 1]
