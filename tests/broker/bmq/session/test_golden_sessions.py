"""Captured clients' input of the reference broker, sent to ours: the answers are the same.

Origin of the captures: BlazingMQ main a5b313cb with the Python SDK 1.2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.bmq.core.config import DomainConfig, Mode, NodeIdentity
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType, PushFlag
from formats.bmq.control import ber
from formats.bmq.control.messages import BrokerResponse, NegotiationMessage
from formats.bmq.wire.ack import iter_acks
from formats.bmq.wire.event import iter_frames
from formats.bmq.wire.push import iter_pushes
from tests.broker.bmq.rig import APPS, LENGTH_MAX, Client, Rig, start
from tests.golden.captures import streams

DOMAINS = [
    DomainConfig("bmq.test.persistent.priority", Mode.PRIORITY),
    DomainConfig("bmq.test.persistent.fanout", Mode.FANOUT, APPS),
    DomainConfig("bmq.test.mem.broadcast", Mode.BROADCAST, persistent=False),
    DomainConfig("bmq.gold.ttl", Mode.PRIORITY),
]
LIMITS = PartitionLimits(journal=1 << 20, data=2 << 20, qlist=64 << 10)

Message = tuple[object, ...]


def connections() -> list[tuple[str, bytes, bytes]]:
    """Name, client to server, server to client; in the order in which they were made, one after the other."""
    both = dict(streams("wire-single"))
    names = sorted(name.removesuffix(".c2s.bin") for name in both if name.endswith(".c2s.bin"))
    return [(name, both[f"{name}.c2s.bin"], both[f"{name}.s2c.bin"]) for name in names]


def first_event(stream: bytes) -> tuple[bytes, memoryview]:
    frame = next(iter_frames(stream, 0, len(stream), LENGTH_MAX))
    return stream[: frame.end], memoryview(stream)[frame.body : frame.end]


def reference_identity(stream: bytes) -> NodeIdentity:
    """A node that goes by the name that the recorded broker had."""
    answer = ber.decode(NegotiationMessage, first_event(stream)[1]).choice
    assert isinstance(answer, BrokerResponse)
    them = answer.broker_identity
    return NodeIdentity(
        cluster_name="local",
        node_id=0,
        host=them.host_name,
        process_name=them.process_name,
        process_id=them.pid,
        version=them.sdk_version,
        user_agent=them.user_agent,
    )


def messages(stream: bytes) -> Iterator[Message]:
    """Decode a stream: control events as they are, acks and pushes one by one, however they share events.

    OUT_OF_ORDER is left out of the flags: the reference sets it for proxies on what it delivers from a list that it
    keeps for apps slower than the fastest; clients do not look at it.
    """
    view = memoryview(stream)
    at = 0
    for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
        if frame.type == EventType.ACK:
            yield from (("ACK", ack) for ack in iter_acks(view, frame.body, frame.end))
        elif frame.type == EventType.PUSH:
            for push in iter_pushes(view, frame.body, frame.end):
                flags = push.flags & ~PushFlag.OUT_OF_ORDER
                yield ("PUSH", flags, *push[1:5], bytes(push.options), bytes(push.data))
        else:
            yield (EventType(frame.type).name, stream[at : frame.end])
        at = frame.end
    assert at == len(stream)


@pytest.fixture
def rig() -> Rig:
    return start(domains=DOMAINS, limits=LIMITS, identity=reference_identity(connections()[0][2]))


def test_the_negotiation_is_answered_byte_for_byte(rig: Rig) -> None:
    for name, sent, answered in connections():
        client = Client(rig.node)
        client.send(first_event(sent)[0])
        assert client.take() == first_event(answered)[0], name


@pytest.mark.parametrize("read", [1 << 30, 65_536, 997])
def test_whole_sessions_are_answered_alike(rig: Rig, read: int) -> None:
    """Producers, then consumers, of priority, fanout and broadcast queues; `read` bytes arrive at a time."""
    compared = 0
    for name, sent, answered in connections():
        client = Client(rig.node)
        for at in range(0, len(sent), read):
            client.send(sent[at : at + read])
            client.take()
        ours, theirs = list(messages(bytes(client.received))), list(messages(answered))
        assert [kind for kind, *_ in ours] == [kind for kind, *_ in theirs], name
        assert ours == theirs, name
        compared += len(ours)
        client.drop()
    assert compared == 765
    assert not rig.faults()
