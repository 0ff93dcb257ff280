"""Exceptions at every call of a hop's steps: what it keeps is whole, or it asks to end; others' links are theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.cluster.bulk import WholeEvents
from broker.cluster.relay import RelayQueue
from broker.core.config import DomainConfig, Mode
from broker.core.faults import Inconsistent
from formats.wire.confirm import build_confirm_event
from tests.broker.cluster.hop_rig import HopClient, World
from tests.broker.injecting import Injected, Injector, one_of_a_kind
from tests.broker.rig import ACK, WRITE, guid, put_event

URI = "bmq://priority/q"


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Step:
    """Something that comes to node 1, a hop towards node 0; `actor` is the client of whom it comes, if it is one."""

    world: World
    take: Callable[[], None]
    actor: HopClient | None = None


def build(*, bulk: bool) -> tuple[World, HopClient, HopClient]:
    """A producer and a consumer on a hop, who has three messages; nothing is on its way."""
    world = World([DomainConfig("priority", Mode.PRIORITY)])
    world.make_primary(0)
    node = world.nodes[1].rig.node
    node.bulk = WholeEvents() if bulk else None
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
    """What a node has to say to another."""
    world.nodes[source].queues.flush()
    return world.nodes[source].links.sent.pop(target)


def post(*, bulk: bool) -> Step:
    world, producer, _ = build(bulk=bulk)
    event = memoryview(put_event(1, guid(50), b"payload"))
    return Step(world, lambda: _received(producer, event), producer)


def _received(client: HopClient, event: memoryview) -> None:
    client.session.receive(event)


def confirm(*, bulk: bool) -> Step:
    world, _, consumer = build(bulk=bulk)
    event = memoryview(build_confirm_event([(1, guid(0), 0), (1, guid(1), 0)]))
    return Step(world, lambda: _received(consumer, event), consumer)


def ack(*, bulk: bool) -> Step:
    world, producer, _ = build(bulk=bulk)
    producer.session.receive(memoryview(put_event(1, guid(50), b"payload")))
    world._deliver(1, 0, on_its_way(world, 1, 0))
    data = on_its_way(world, 0, 1)
    return Step(world, lambda: world._deliver(0, 1, data))


def push(*, bulk: bool) -> Step:
    world, _, _ = build(bulk=bulk)
    other = world.client(0)
    other.world = None
    other.open(1, URI, WRITE | ACK)
    other.session.receive(memoryview(put_event(1, guid(60), b"payload")))
    data = on_its_way(world, 0, 1)
    return Step(world, lambda: world._deliver(0, 1, data))


def state(world: World) -> Any:
    """What the hop keeps, whoever has it."""
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


@pytest.mark.parametrize("bulk", [False, True], ids=["singly", "whole events"])
@pytest.mark.parametrize("make", [post, confirm, ack, push])
def test_every_call_of_a_hop(make: Callable[..., Step], bulk: bool) -> None:
    step = make(bulk=bulk)
    before = state(step.world)
    probe = Injector()
    with probe.active():
        step.take()
    after = state(step.world)
    assert before != after
    kinds = {"on purpose": 0, "the actor": 0, "others": 0}
    for at in one_of_a_kind(probe.sites):
        step = make(bulk=bulk)
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
