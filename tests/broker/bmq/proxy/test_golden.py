"""Proxies of the reference open, post, confirm, reject and close: this broker answers them as the reference's node did.

Connections of captured runs (`wire-proxies`), replayed event by event.
"""

from __future__ import annotations

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.relay.guests import Guests
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    BrokerResponse,
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlMessage,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
    StatusCategory,
)
from formats.bmq.wire.ack import iter_acks
from formats.bmq.wire.event import EventType, Frame, iter_frames, schema_message
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.push import iter_pushes
from formats.errors import FormatError
from tests.broker.bmq.rig import start
from tests.golden.captures import streams

LENGTH_MAX = 1 << 26
FANOUT = DomainConfig("bmq.test.mmap.fanout.sc", Mode.FANOUT, ("foo", "bar", "baz"), delivery_attempts_max=1)
PRIORITY = DomainConfig("bmq.test.mmap.priority.sc", Mode.PRIORITY)

CASES = {
    "poison": ("wire-poison_proxy_and_replica_fanout/s.17", FANOUT),
    "priorities": ("wire-consumer_multiple_priorities/s.17", PRIORITY),
}


@pytest.mark.parametrize("name", CASES)
def test_answers(name: str) -> None:
    connection, domain = CASES[name]
    found = {each.rsplit(".", 2)[1]: data for each, data in streams("wire-proxies") if connection in each}
    rig = start(domains=[domain], make_door=Guests)
    session = rig.node.connect("proxy")
    said = bytearray()
    for event in events_of(found["c2s"]):
        assert session.receive(memoryview(bytearray(event))) == len(event)
        assert not session.finished
        said += session.take_output()
        session.output_sent()
    ours, theirs = bytes(said), found["s2c"]
    identity = negotiation(ours)
    assert identity.result.category is StatusCategory.SUCCESS
    wanted = {message.r_id for message in controls(found["c2s"]) if isinstance(message.choice, REQUESTS)}
    assert answers(ours, wanted) == answers(theirs, wanted)
    assert len(answers(ours, wanted)) == len(wanted)
    assert acks(ours) == acks(theirs)
    assert pushes(ours) == pushes(theirs)
    assert pushes(ours)


REQUESTS = OpenQueue | ConfigureStream | CloseQueue
KINDS = OpenQueueResponse | ConfigureStreamResponse | CloseQueueResponse


def frames(data: bytes) -> list[tuple[Frame, memoryview]]:
    view = memoryview(data)
    return [(frame, view) for frame in iter_frames(view, 0, len(view), LENGTH_MAX)]


def events_of(data: bytes) -> list[bytes]:
    found, start_at = [], 0
    for frame, view in frames(data):
        found.append(bytes(view[start_at : frame.end]))
        start_at = frame.end
    return found


def controls(data: bytes) -> list[ControlMessage]:
    found = []
    for frame, view in frames(data)[1:]:
        if frame.type == EventType.CONTROL:
            try:
                found.append(ber.decode(ControlMessage, schema_message(view, frame.body, frame.end)))
            except FormatError:
                continue
    return found


def negotiation(data: bytes) -> BrokerResponse:
    frame, view = frames(data)[0]
    choice = ber.decode(NegotiationMessage, schema_message(view, frame.body, frame.end)).choice
    assert isinstance(choice, BrokerResponse)
    return choice


def answers(data: bytes, numbers: set[int | None]) -> list[ControlMessage]:
    return [each for each in controls(data) if each.r_id in numbers and isinstance(each.choice, KINDS)]


def acks(data: bytes) -> list[tuple[int, bytes, int]]:
    return [
        (ack.status, ack.guid, ack.queue_id)
        for frame, view in frames(data)
        if frame.type == EventType.ACK
        for ack in iter_acks(view, frame.body, frame.end)
    ]


def pushes(data: bytes) -> list[tuple[int, int, bytes, bytes, set[tuple[int, int]]]]:
    return [
        (push.flags, push.queue_id, push.guid, bytes(push.data), {(each.sub_queue_id, each.rda_info) for each in infos})
        for frame, view in frames(data)
        if frame.type == EventType.PUSH
        for push in iter_pushes(view, frame.body, frame.end)
        for infos in [sub_queue_infos(push.options)]
    ]
