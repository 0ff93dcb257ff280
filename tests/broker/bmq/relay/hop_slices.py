"""A hop whose work is done in slices of a few messages, and what others see between them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import AckStatus, PropertyType, PutFlag
from formats.bmq.control import ber
from formats.bmq.control.messages import ControlMessage
from formats.bmq.wire.event import EventType, iter_frames, schema_message
from formats.bmq.wire.properties import Property, encode_properties
from formats.bmq.wire.reject import iter_rejects
from tests.broker.bmq.relay.hop_rig import FANOUT, QUEUE, World
from tests.broker.bmq.rig import ACK, WRITE, Client, guid

__all__ = [
    "AMOUNT",
    "LAST",
    "MANY",
    "Other",
    "block",
    "break_link",
    "events",
    "fill",
    "relay_of",
    "slices",
    "slow",
    "unblock",
    "values",
]

MANY = 100
AMOUNT = 5
LAST = b"#%d" % MANY


def fill(world: World, uri: str = QUEUE, count: int = MANY, *, with_x: bool = False) -> Client:
    """Post messages at the primary; `x` is how many came before, if they have it."""
    producer = world.client(0)
    producer.open(0, uri, WRITE | ACK)
    for number in range(count):
        if with_x:
            data = encode_properties([Property("x", PropertyType.INT32, number)], 0) + b"#%d" % number
            producer.put(0, guid(number), data, flags=PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)
        else:
            assert producer.post(0, guid(number), b"#%d" % number) is AckStatus.SUCCESS
    return producer


def relay_of(world: World, uri: str = QUEUE) -> RelayQueue:
    relay = world.nodes[1].rig.node.queues[uri]
    assert isinstance(relay, RelayQueue)
    return relay


def slow(world: World, node_id: int = 1, amount: int = AMOUNT) -> None:
    work = world.nodes[node_id].rig.node.work
    work.amount = work.left = amount


def slices(world: World, node_id: int = 1) -> Iterator[int]:
    """Let a node do its tasks; its other clients and links are served after each slice."""
    work = world.nodes[node_id].rig.node.work
    number = 0
    while work.tasks:
        work.end_step()
        world.run()
        number += 1
        assert number < 10 * MANY
        yield number


def block(client: Client) -> None:
    """Make the client's link accept no more output."""
    client.session.client.ready = False


def unblock(client: Client) -> None:
    client.session.client.ready = True
    for handle in client.session.handles.values():
        handle.resume()


def break_link(world: World) -> None:
    """Nodes 0 and 1 lose each other, and find each other again at once."""
    world.part(0, 1)
    world.join(0, 1)
    world.nodes[1].queues.primary_active(0, 0, True)
    world.run()


class Other:
    """A producer of another queue at the hop: it is served after each slice."""

    def __init__(self, world: World) -> None:
        self._client = world.client(1)
        self._client.open(9, FANOUT, WRITE | ACK)
        self._number = 1000

    def is_served(self) -> bool:
        self._number += 1
        return self._client.post(9, guid(self._number), b"x") is AckStatus.SUCCESS


def events(world: World, source: int, target: int) -> list[object]:
    """Decode the messages sent from one node to another: control messages, and the GUIDs of rejects."""
    found: list[object] = []
    for one, other, data in world.wire:
        if (one, other) != (source, target):
            continue
        view = memoryview(data)
        for frame in iter_frames(view, 0, len(view), 1 << 26):
            if frame.type == EventType.CONTROL:
                found.append(ber.decode(ControlMessage, schema_message(view, frame.body, frame.end)).choice)
            elif frame.type == EventType.REJECT:
                found += [each for _, each, _ in iter_rejects(view, frame.body, frame.end)]
    return found


def values(client: Client) -> list[int]:
    return [int(payload.rpartition(b"#")[2]) for payload in client.payloads()]
