"""Exceptions at every call of a hop's steps, and of the primary's above it: what each keeps is whole, or it asks to
end; others' links are theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.relay.relay import RelayQueue
from broker.common.faults import Inconsistent
from formats.bmq.codes import PutFlag
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.reject import build_reject_event
from tests.broker.bmq.injecting import (
    Injected,
    Injector,
    Story,
    check_places,
    fingerprint,
    one_of_a_kind,
    without_places,
)
from tests.broker.bmq.relay.hop_rig import HopClient, World
from tests.broker.bmq.rig import ACK, WRITE, guid, put_event
from tests.families import mostly_slow

# Faults are injected into calls, of which compiled ones are not seen.
pytestmark = pytest.mark.interpreted

URI = "bmq://priority/q"

# A hop forwards a post with another flag by itself.
NOT_PLAIN = PutFlag.ACK_REQUESTED | 4


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Step:
    """An input of node 1, a relay for node 0; `actor` is the client that it comes from, if it is one.

    Or it comes `at` node 0, the primary.
    """

    world: World
    take: Callable[[], None]
    actor: HopClient | None = None
    at: int = 1


def build(*, mortal: bool = False) -> tuple[World, HopClient, HopClient]:
    """A producer and a consumer on a hop, who has three messages; nothing is on its way."""
    world = World([DomainConfig("priority", Mode.PRIORITY, delivery_attempts_max=int(mortal))])
    world.make_primary(0)
    producer, consumer = world.client(1), world.client(1)
    producer.open(1, URI, WRITE | ACK)
    consumer.read(1, URI)
    for number in range(3):
        producer.post(1, guid(number), b"payload")
    world.run()
    producer.take()
    consumer.take()
    for client in (producer, consumer):
        client.inbox.clear()
        client.world = None
    return world, producer, consumer


def on_its_way(world: World, source: int, target: int) -> bytearray:
    """Take a node's output for another node."""
    world.nodes[source].queues.flush()
    return world.nodes[source].links.sent.pop(target)


def post() -> Step:
    world, producer, _ = build()
    event = memoryview(put_event(1, guid(50), b"payload"))
    return Step(world, lambda: _received(producer, event), producer)


def post_singly() -> Step:
    world, producer, _ = build()
    event = memoryview(put_event(1, guid(50), b"payload", flags=NOT_PLAIN))
    return Step(world, lambda: _received(producer, event), producer)


def _received(client: HopClient, event: memoryview) -> None:
    client.session.receive(event)


def confirm() -> Step:
    world, _, consumer = build()
    event = memoryview(build_confirm_event([(1, guid(0), 0), (1, guid(1), 0)]))
    return Step(world, lambda: _received(consumer, event), consumer)


def ack() -> Step:
    world, producer, _ = build()
    producer.session.receive(memoryview(put_event(1, guid(50), b"payload")))
    world._deliver(1, 0, on_its_way(world, 1, 0))
    data = on_its_way(world, 0, 1)
    return Step(world, lambda: world._deliver(0, 1, data))


def push() -> Step:
    world, _, _ = build()
    other = world.client(0)
    other.world = None
    other.open(1, URI, WRITE | ACK)
    other.session.receive(memoryview(put_event(1, guid(60), b"payload")))
    data = on_its_way(world, 0, 1)
    return Step(world, lambda: world._deliver(0, 1, data))


def primary_put(*, count: int = 3) -> Step:
    """Posts of the hop's producer come to the primary, which has a consumer of its own."""
    world, producer, _ = build()
    own = world.client(0)
    own.read(1, URI)
    own.world = None
    for number in range(count):
        producer.session.receive(memoryview(put_event(1, guid(50 + number), b"payload")))
    data = on_its_way(world, 1, 0)
    return Step(world, lambda: world._deliver(1, 0, data), at=0)


def primary_confirm(*, count: int = 3) -> Step:
    world, _, consumer = build()
    consumer.session.receive(memoryview(build_confirm_event((1, guid(number), 0) for number in range(count))))
    data = on_its_way(world, 1, 0)
    return Step(world, lambda: world._deliver(1, 0, data), at=0)


def primary_reject(*, count: int = 3) -> Step:
    """The hop's consumer has not survived its messages."""
    world, _, _ = build(mortal=True)
    (handle,) = [each for each in world.nodes[0].queues._downstreams[1].handles.values() if each.streams]
    ((sub_queue_id, stream),) = handle.streams.items()
    held = list(stream.unconfirmed)[:count]
    data = bytearray(build_reject_event((handle.queue_id, each, sub_queue_id) for each in held))
    return Step(world, lambda: world._deliver(1, 0, data), at=0)


def state(world: World) -> Any:
    """Return the relay's state, in a comparable form."""
    found = {}
    for uri, queue in world.nodes[1].rig.node.queues.items():
        assert isinstance(queue, RelayQueue)
        room = queue.posts.room
        apps = {app.app_id: (app.messages, app.bytes) for app in queue.apps.values()}
        messages = {key: message.outstanding for key, message in queue.messages.items()}
        found[uri] = (sorted(queue.unacknowledged), room.bytes, room.messages, messages, apps, queue.usage.messages)
    return found


def check(world: World) -> None:
    """Each message is with one consumer or waits; what the room counts is what is on its way."""
    for queue in world.nodes[1].rig.node.queues.values():
        assert isinstance(queue, RelayQueue)
        assert queue.posts.room.messages == len(queue.unacknowledged)
        for app in queue.apps.values():
            wanted = sorted(key for key, message in queue.messages.items() if message.outstanding & app.bit)
            places = [message.guid for message in app.waiting()]
            for stream in app.streams:
                places += stream.unconfirmed
            assert sorted(places) == wanted
            assert app.messages == len(wanted)


@pytest.mark.parametrize("make", mostly_slow([post_singly, post, confirm, ack, push], 4))
def test_every_call_of_a_hop(make: Callable[..., Step], calls: slice) -> None:
    step = make()
    before = state(step.world)
    probe = Injector()
    with probe.active():
        step.take()
    after = state(step.world)
    assert before != after
    kinds = {"on purpose": 0, "the actor": 0, "others": 0}
    for at in one_of_a_kind(probe.sites, calls):
        step = make()
        hop = step.world.nodes[1]
        links_failed: list[tuple[int, Exception]] = []
        hop.links.fail = lambda *which, found=links_failed: found.append(which)  # type: ignore[method-assign]
        injector = Injector(at)
        raised: BaseException | None = None
        try:
            with injector.active():
                step.take()
        except (Inconsistent, Injected) as error:
            raised = error
        faults = hop.rig.node.faults
        if not injector.where:
            continue
        if isinstance(raised, Inconsistent):
            kinds["on purpose"] += 1
        elif raised is not None:
            # The link that it came by ends. Of one message all came or nothing; two confirms are two, and what is
            # acknowledged comes down beside that.
            kinds["the actor"] += 1
            assert make in (confirm, ack) or state(step.world) in (before, after), injector.where
            check(step.world)
        else:
            assert faults.of_sessions + faults.others + len(links_failed) + injector.is_lost == 1, injector.where
            kinds["others"] += 1
            assert state(step.world) == after, injector.where
            check(step.world)
    assert kinds["on purpose"]
    assert kinds["the actor"]
    assert kinds["others"]


def primary_state(world: World) -> Any:
    """The primary's state, wherever it is held, and the content of its files."""
    return fingerprint(Story(world.nodes[0].rig, {}))


@pytest.mark.slow
@pytest.mark.parametrize("make", [primary_put, primary_confirm, primary_reject])
def test_every_call_of_a_primary(make: Callable[..., Step], calls: slice) -> None:
    step = make()
    states = [primary_state(step.world)]
    probe = Injector()
    with probe.active():
        step.take()
    states.append(primary_state(step.world))
    assert states[0] != states[1]
    for count in (1, 2):
        partly = make(count=count)
        partly.take()
        states.append(primary_state(partly.world))
    kinds = {"on purpose": 0, "the hop": 0, "others": 0}
    for at in one_of_a_kind(probe.sites, calls):
        step = make()
        primary = step.world.nodes[0]
        links_failed: list[tuple[int, Exception]] = []
        primary.links.fail = lambda *which, found=links_failed: found.append(which)  # type: ignore[method-assign]
        injector = Injector(at)
        raised: BaseException | None = None
        try:
            with injector.active():
                step.take()
        except (Inconsistent, Injected) as error:
            raised = error
        if not injector.where:
            continue
        if isinstance(raised, Inconsistent):
            kinds["on purpose"] += 1
            continue
        faults = primary.rig.node.faults
        if raised is None:
            assert faults.of_sessions + faults.others + len(links_failed) + injector.is_lost == 1, injector.where
        kinds["the hop" if raised is not None or links_failed else "others"] += 1
        found = primary_state(step.world)
        if links_failed:
            # Messages after the failed push go to others.
            assert without_places(found) == without_places(states[1]), injector.where
        else:
            assert found in states if raised is not None else found == states[1], injector.where
        check_places(primary.rig)
        if raised is not None or links_failed:
            step.world.part(0, 1)
            check_places(primary.rig)
    assert kinds["on purpose"]
    assert kinds["the hop"]
