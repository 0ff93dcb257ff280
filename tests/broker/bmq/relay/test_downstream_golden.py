"""A replica of the reference opens, posts, rejects and closes: this node answers it as the reference's primary did.

The connection between two brokers of a captured run (`wire-proxies`, poison messages), replayed event by event.
"""

from __future__ import annotations

from broker.bmq.core.config import DomainConfig, Mode
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlMessage,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
)
from formats.bmq.wire.ack import iter_acks
from formats.bmq.wire.event import EventType, Frame, iter_frames, schema_message
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.push import iter_pushes
from formats.errors import FormatError
from tests.broker.bmq.relay.hop_rig import World
from tests.golden.captures import streams

LENGTH_MAX = 1 << 26
# The replica had accepted the connection: what it sent is the answering side's.
CONNECTION = "wire-poison_proxy_and_replica_fanout/s.10"
DOMAIN = DomainConfig("bmq.test.mmap.fanout.sc", Mode.FANOUT, ("foo", "bar", "baz"), delivery_attempts_max=1)
URI = "bmq://bmq.test.mmap.fanout.sc/qqq1"


def test_answers() -> None:
    found = {name.rsplit(".", 2)[1]: data for name, data in streams("wire-proxies") if CONNECTION in name}
    world = World([DOMAIN])
    world.make_primary(0)
    world.places.assign_queue(URI, DOMAIN, lambda _: None)
    link = world.nodes[0].links
    wanted = {message.r_id for message in requests(found["s2c"])}
    for event in of_queues(found["s2c"]):
        world._deliver(1, 0, bytearray(event))
        world.nodes[0].queues.flush()
    said = bytes(link.sent[1])
    # Requests are answered in order, with the same contents.
    ours, theirs = answers(said, wanted), answers(found["c2s"], wanted)
    assert len(theirs) == 19
    assert ours == theirs
    assert acks(said) == acks(found["c2s"])
    assert pushes(said) == pushes(found["c2s"])


def events(data: bytes) -> list[tuple[Frame, memoryview]]:
    view = memoryview(data)
    return [(frame, view) for frame in iter_frames(view, 0, len(view), LENGTH_MAX)]


def of_queues(data: bytes) -> list[bytes]:
    """The events about queues and their messages."""
    found = []
    start = 0
    for frame, view in events(data):
        event, start = bytes(view[start : frame.end]), frame.end
        if frame.type in (EventType.PUT, EventType.CONFIRM, EventType.REJECT) or (
            frame.type == EventType.CONTROL and is_request(decoded(frame, view))
        ):
            found.append(event)
    return found


def decoded(frame: Frame, view: memoryview) -> ControlMessage | NegotiationMessage:
    body = schema_message(view, frame.body, frame.end)
    try:
        return ber.decode(ControlMessage, body)
    except FormatError:
        return ber.decode(NegotiationMessage, body)


def is_request(message: ControlMessage | NegotiationMessage) -> bool:
    return isinstance(message.choice, OpenQueue | ConfigureStream | CloseQueue)


def controls(data: bytes) -> list[ControlMessage]:
    found = [decoded(frame, view) for frame, view in events(data) if frame.type == EventType.CONTROL]
    return [message for message in found if isinstance(message, ControlMessage)]


def requests(data: bytes) -> list[ControlMessage]:
    return [message for message in controls(data) if is_request(message)]


def answers(data: bytes, numbers: set[int | None]) -> list[ControlMessage]:
    kinds = OpenQueueResponse | ConfigureStreamResponse | CloseQueueResponse
    return [each for each in controls(data) if each.r_id in numbers and isinstance(each.choice, kinds)]


def acks(data: bytes) -> list[tuple[int, bytes, int]]:
    return [
        (ack.status, ack.guid, ack.queue_id)
        for frame, view in events(data)
        if frame.type == EventType.ACK
        for ack in iter_acks(view, frame.body, frame.end)
    ]


def pushes(data: bytes) -> list[tuple[int, int, bytes, set[tuple[int, int]]]]:
    return [
        (push.flags, push.queue_id, push.guid, {(info.sub_queue_id, info.rda_info) for info in infos})
        for frame, view in events(data)
        if frame.type == EventType.PUSH
        for push in iter_pushes(view, frame.body, frame.end)
        for infos in [sub_queue_infos(push.options)]
    ]
