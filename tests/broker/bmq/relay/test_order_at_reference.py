"""The order in which a broker repeats its opens, subscriptions and data at an upstream of the reference."""

from __future__ import annotations

import pytest

from formats.bmq.codes import AckStatus, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ConfigureStream, ControlMessage, OpenQueue
from formats.bmq.wire.event import iter_frames, schema_message
from tests.broker.bmq.relay.hop_rig import DOMAINS, LENGTH_MAX, QUEUE, World
from tests.broker.bmq.rig import ACK, READ, WRITE, guid


def sent_to(world: World, node_id: int) -> list[str]:
    """Name the events that a node was sent: the requests about queues, and the data."""
    names = []
    for _, target, data in world.wire:
        view = memoryview(data)
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX) if target == node_id else ():
            kind = EventType(frame.type)
            if kind is EventType.CONTROL:
                choice = ber.decode(ControlMessage, schema_message(view, frame.body, frame.end)).choice
                names += [type(choice).__name__] * isinstance(choice, (OpenQueue, ConfigureStream))
            elif kind in (EventType.PUT, EventType.CONFIRM):
                names.append(kind.name)
    return names


@pytest.mark.parametrize("foreign", [False, True])
def test_subscriptions_come_before_posts_and_confirms(foreign: bool) -> None:
    # It discards what comes earlier (mqbblp::RemoteQueue), and later posts would overtake that.
    world = World(DOMAINS, (0, 1, 2))
    world.make_primary(0)
    client = world.client(1)
    client.open(1, QUEUE, READ | WRITE | ACK)
    client.read(1, QUEUE)
    assert client.post(1, guid(1), b"a") is AckStatus.SUCCESS
    (push,) = client.pushes()
    if foreign:
        world.nodes[1].links.foreign.add(2)
    world.crash(0)
    client.confirm(1, push.guid)
    client.put(1, guid(2), b"b")
    del world.wire[:]
    world.make_primary(2)
    sequence = sent_to(world, 2)
    data = {"PUT", "CONFIRM"}
    assert data <= set(sequence)
    configured = sequence.index("ConfigureStream")
    assert all((place > configured) is foreign for place, name in enumerate(sequence) if name in data)
    assert [ack.status for ack in client.acks()] == [AckStatus.SUCCESS]
