"""The order in which a broker repeats its opens, subscriptions and data at an upstream of the reference."""

from __future__ import annotations

import pytest

from formats.bmq.codes import AckStatus, EventType, PropertyType, PushFlag, PutFlag
from formats.bmq.control import ber
from formats.bmq.control.messages import ClientType, ConfigureStream, ControlMessage, OpenQueue
from formats.bmq.wire.event import iter_frames, schema_message
from formats.bmq.wire.properties import Property, encode_properties
from tests.broker.bmq.relay.hop_rig import DOMAINS, FANOUT, LENGTH_MAX, QUEUE, World
from tests.broker.bmq.rig import ACK, READ, WRITE, Wanted, guid


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


def test_a_second_app_gets_all_that_is_older_out_of_order() -> None:
    """The reference's proxies deliver what has the flag before what comes in the same event without it.

    The second app's first messages are older than what the first app got, and came to this relay later.
    """
    world = World(DOMAINS, (0, 1))
    world.make_primary(0)
    producer, proxy = world.client(0), world.client(1, ClientType.TCPBROKER)
    producer.open(0, FANOUT, WRITE | ACK)
    proxy.open(1, FANOUT, READ, "foo", 1)
    proxy.open(1, FANOUT, READ, "bar", 2)
    proxy.subscribe(1, Wanted("x >= 2"), app="bar")
    for number in range(4):
        data = encode_properties([Property("x", PropertyType.INT32, number)], 0) + b"%d" % number
        producer.put(0, guid(number), data, flags=PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)
    assert [(push.payload[-1:], push.flags & PushFlag.OUT_OF_ORDER) for push in proxy.pushes()] == [
        (b"2", 0),
        (b"3", 0),
    ]
    world.nodes[1].rig.now.ms += 1
    proxy.configure(1, "foo", subscription_id=2)
    late = [(push.payload[-1:], push.flags & PushFlag.OUT_OF_ORDER) for push in proxy.pushes()]
    assert late == [(b"%d" % number, PushFlag.OUT_OF_ORDER) for number in range(4)]
