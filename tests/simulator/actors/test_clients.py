"""Consumers that get more than they have asked for say so, and only those."""

from __future__ import annotations

import pytest

from tests.broker.bmq.rig import guid
from tests.simulator.actors.clients import PLACES_MAX, Consumer, Tuning
from tests.simulator.actors.operator import EXTRA_APP
from tests.simulator.judges.invariants import Post, Violation
from tests.simulator.worlds.features import Feature
from tests.simulator.worlds.world import FANOUT, PARTED, World

FIRST, SECOND = 1, PLACES_MAX + 1  # the ids of the subscriptions of one consumer


def consumer_of(world: World, uri: str, app: str, *, has_each: bool = False) -> Consumer:
    """Make a consumer that has asked for one message at a time, and post three messages."""
    for number in (1, 2, 3):
        world.records.posted(Post(guid(number), uri, "p0", number, 10, made_us=number))
    consumer = Consumer(world, "d0", [(uri, app)], has_each=has_each)
    consumer._tunings[0].append(Tuning(0, 1, ""))
    return consumer


def test_each_subscription_of_a_consumer_may_hold_as_much_as_it_has_asked_for() -> None:
    """One that holds more, from before it has asked for less, takes nothing from the others."""
    consumer = consumer_of(World(1, features=frozenset({Feature.PARTS})), PARTED, "", has_each=True)
    consumer._held[0] |= {guid(1): SECOND, guid(2): SECOND}
    consumer._count(0, guid(3), FIRST)
    consumer._held[0].pop(guid(3))
    consumer._held[0].pop(guid(2))
    with pytest.raises(Violation, match=r"d0 holds 2 messages of bmq://priority/s, .* and has asked for"):
        consumer._count(0, guid(3), SECOND)


def test_what_an_app_had_before_its_domain_named_it_again_does_not_count() -> None:
    world = World(1, features=frozenset({Feature.APPS}))
    view = world.records.views[FANOUT][EXTRA_APP]
    consumer = consumer_of(world, FANOUT, EXTRA_APP)
    consumer._held[0] |= {guid(1): FIRST}
    view.owes, view.begun_us = True, 2
    consumer._count(0, guid(2), FIRST)
    with pytest.raises(Violation, match=r"d0 holds 2 messages of bmq://fanout/f, .* and has asked for"):
        consumer._count(0, guid(3), FIRST)
