"""The machine against what the reference broker sent: it must send what the official client did."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bmqctl.client.protocol.events import (
    Acks,
    Closed,
    Event,
    Opened,
    Pushes,
    QueueHandle,
    Started,
    Stopped,
    StreamOptions,
)
from bmqctl.client.protocol.guid import ClientGuidGenerator
from bmqctl.client.protocol.machine import Machine, MachineOptions
from bmqctl.client.protocol.message import Message
from formats.bmq.control import ber
from formats.bmq.control.messages import ClientIdentity, ControlMessage, NegotiationMessage, OpenQueue
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.confirm import iter_confirms
from formats.bmq.wire.event import EventType, next_frame
from formats.bmq.wire.push import Push
from formats.bmq.wire.put import Put, iter_puts
from tests.golden.archives import HERE, truth

# As the recording's script configured its consumers.
OPTIONS = StreamOptions(max_unconfirmed_messages=100_000, max_unconfirmed_bytes=1 << 30, priority=0)
SECOND_NS = 1_000_000_000


class Frame(NamedTuple):
    kind: EventType
    whole: bytes
    body: int

    @property
    def content(self) -> memoryview:
        return memoryview(self.whole)[self.body :]


class Capture(NamedTuple):
    """One connection of the recording, as events each way."""

    sent: list[Frame]
    received: list[Frame]

    def first(self, kind: EventType) -> list[Frame]:
        return [frame for frame in self.sent if frame.kind is kind]

    @property
    def identity(self) -> ClientIdentity:
        message = ber.decode(NegotiationMessage, self.sent[0].content).choice
        assert isinstance(message, ClientIdentity)
        return message

    @property
    def opening(self) -> Any:
        request = ber.decode(ControlMessage, self.sent[1].content).choice
        assert isinstance(request, OpenQueue)
        return request.handle_parameters


def frames(data: bytes) -> Iterator[Frame]:
    at = 0
    while at < len(data):
        frame = next_frame(data, at, len(data), len(data))
        assert frame is not None
        yield Frame(EventType(frame.type), data[at : frame.end], frame.body - at)
        at = frame.end


@cache
def captures() -> dict[str, Capture]:
    """Read the captures, by number of the connection."""
    contents: dict[str, bytes] = {}
    with tarfile.open(HERE / "wire-single.tar.xz") as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                _, number, _, direction, _ = Path(member.name).name.split(".")
                contents[number + direction] = file.read()
    numbers = sorted({name[:2] for name in contents})
    return {n: Capture(list(frames(contents[n + "c2s"])), list(frames(contents[n + "s2c"]))) for n in numbers}


CONSUMERS = ("02", "04", "06", "07", "08")
PRODUCERS = ("01", "03", "05", "09", "10")


class Player:
    """A machine that receives the bytes of the recorded client."""

    def __init__(self, number: str) -> None:
        self.capture = captures()[number]
        identity = self.capture.identity
        self.generator = ClientGuidGenerator(
            bytes.fromhex(identity.guid_info.client_id), 0, identity.guid_info.nano_seconds_from_epoch
        )
        options = MachineOptions(identity.process_name, identity.pid, 10 * SECOND_NS, put_batch=1)
        self.machine = Machine(options, self.generator, 0)
        self.replies = iter(self.capture.received)
        self.machine.start(0)
        self.introduction = bytes(self.machine.data_to_send())

    def sent(self) -> list[Frame]:
        return list(frames(bytes(self.machine.data_to_send())))

    def hear(self, kind: EventType = EventType.CONTROL) -> list[Event]:
        reply = next(self.replies)
        assert reply.kind is kind
        return self.machine.receive(reply.whole, 0)

    def open(self) -> QueueHandle:
        (started,) = self.hear()
        assert isinstance(started, Started)
        opening = self.capture.opening
        queue = self.machine.open_queue(
            opening.uri, read=bool(opening.read_count), write=bool(opening.write_count), options=OPTIONS, now_ns=0
        )
        assert [f.whole for f in self.sent()] == [self.capture.sent[1].whole]
        events = self.hear()
        if queue.read:
            assert events == []
            assert [f.whole for f in self.sent()] == [self.capture.sent[2].whole]
            events = self.hear()
        assert events == [Opened(queue)]
        return queue

    def end(self, queue: QueueHandle) -> None:
        """Close and disconnect, request by request."""
        expected = [frame.whole for frame in self.capture.first(EventType.CONTROL)]
        closing = expected[3:] if queue.read else expected[2:]
        self.machine.close_queue(queue, 0)
        for frame in closing[:-1]:
            assert [f.whole for f in self.sent()] == [frame]
            events = self.hear()
        assert events == [Closed(queue)]
        self.machine.disconnect(0)
        assert [f.whole for f in self.sent()] == closing[-1:]
        assert self.hear() == [Stopped(None)]
        assert next(self.replies, None) is None


@pytest.mark.parametrize("number", captures())
def test_the_identity_is_that_of_the_official_client(number: str) -> None:
    player = Player(number)
    (frame,) = frames(player.introduction)
    ours = ber.decode(NegotiationMessage, frame.content).choice
    theirs = player.capture.identity
    assert isinstance(ours, ClientIdentity)
    # That client said nothing of its user agent, and gave each session a number and its own release.
    assert replace(ours, user_agent="", session_id=0, sdk_version=0) == replace(theirs, session_id=0, sdk_version=0)


@pytest.mark.parametrize("number", CONSUMERS)
def test_a_consumer_asks_and_confirms_as_the_official_client_did(number: str) -> None:
    player = Player(number)
    queue = player.open()
    messages: list[Message] = []
    while len(messages) < expected_count(player):
        (pushes,) = player.hear(EventType.PUSH)
        assert isinstance(pushes, Pushes)
        assert pushes.queue is queue
        messages += pushes.messages
    check_contents(messages)
    confirms = [c for f in player.capture.first(EventType.CONFIRM) for c in confirmed(f)]
    for _, guid, _ in confirms:
        player.machine.confirm(queue, guid)
    ours = player.sent()
    # One event where the official client sent one per message.
    assert [f.kind for f in ours] == ([EventType.CONFIRM] if confirms else [])
    assert [c for f in ours for c in confirmed(f)] == confirms
    player.end(queue)


def confirmed(frame: Frame) -> list[tuple[int, bytes, int]]:
    return list(iter_confirms(memoryview(frame.whole), frame.body, len(frame.whole)))


def expected_count(player: Player) -> int:
    canonical = player.capture.opening.uri.partition("?")[0]
    return sum(posted["queue"] == canonical for posted in truth("single"))


def check_contents(messages: list[Message]) -> None:
    by_guid = {posted["guid"]: posted for posted in truth("single")}
    for message in messages:
        posted = by_guid[message.guid.hex()]
        assert hashlib.sha256(message.payload).hexdigest() == posted["sha256"]
        properties = {k: v.hex() if isinstance(v, bytes) else v for k, v in message.properties.items()}
        assert properties == posted["properties"]


@pytest.mark.parametrize("number", PRODUCERS)
def test_a_producer_posts_as_the_official_client_did(number: str) -> None:
    player = Player(number)
    queue = player.open()
    for expected in player.capture.first(EventType.PUT):
        (put,) = iter_puts(memoryview(expected.whole), expected.body, len(expected.whole))
        message = received(put)
        guid = player.machine.post(
            queue,
            message.payload,
            message.typed_properties,
            compress=bool(put.compression),
            correlation=put.guid,
            now_ns=int.from_bytes(put.guid[3:10], "big"),
        )
        assert guid == put.guid
        (frame,) = player.sent()
        assert without_schema_id(frame) == without_schema_id(expected)
    acked: list[bytes] = []
    while len(acked) < len(player.capture.first(EventType.PUT)):
        (acks,) = player.hear(EventType.ACK)
        assert isinstance(acks, Acks)
        assert all(ack.status is AckStatus.SUCCESS and ack.guid == ack.correlation for ack in acks.acks)
        acked += [ack.guid for ack in acks.acks]
    player.end(queue)


def received(put: Put) -> Message:
    """Convert a posted message to the one that a consumer receives."""
    return Message.of(Push(put.flags, put.queue_id, put.guid, put.compression, put.schema_id, put.options, put.data))


def without_schema_id(frame: Frame) -> Put:
    (put,) = iter_puts(memoryview(frame.whole), frame.body, len(frame.whole))
    return put._replace(schema_id=0)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_it_does_not_matter_how_the_bytes_are_cut(size: int) -> None:
    player = Player("04")
    stream = b"".join(frame.whole for frame in player.capture.received[:1])
    assert len(cut(player.machine, stream, size)) == 1
    player.machine.open_queue(player.capture.opening.uri, read=True, write=False, options=OPTIONS, now_ns=0)
    stream = b"".join(frame.whole for frame in player.capture.received[1:-3])
    events = cut(player.machine, stream, size)
    assert isinstance(events[0], Opened)
    messages = [m for event in events[1:] if isinstance(event, Pushes) for m in event.messages]
    assert len(messages) == expected_count(player)
    check_contents(messages)


def cut(machine: Machine, stream: bytes, size: int) -> list[Event]:
    events: list[Event] = []
    for at in range(0, len(stream), size):
        events += machine.receive(stream[at : at + size], 0)
    return events
