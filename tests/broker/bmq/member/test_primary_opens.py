"""Opens by members of the reference, played by the primary's links to node 2."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.member import primary_opens
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlMessage,
    Expression,
    ExpressionVersion,
    OpenQueue,
    OpenQueueResponse,
    Status,
    StatusCategory,
    StreamParameters,
    Subscription,
)
from formats.bmq.wire.event import build_schema_event, iter_frames, schema_message
from formats.bmq.wire.push import iter_pushes
from tests.broker.bmq.member.member_bus import Members, Process, members
from tests.broker.bmq.member.test_member import Sieve
from tests.broker.bmq.rig import ACK, READ, WRITE, guid, handle
from tests.broker.fakes import MemoryDirectory

QUEUE = "bmq://priority/q"

# Above those of the node's own requests.
FIRST_REQUEST = 1_000_000

ANY = Expression(version=ExpressionVersion.UNDEFINED, text="")


class Heard(Sieve):
    """A link that loses events of some kinds, and keeps answers about queues, and pushes, from the node."""

    def __init__(self, *kinds: EventType) -> None:
        super().__init__(*kinds)
        self.answers: list[ControlMessage] = []
        self.pushed: list[bytes] = []

    def append(self, event: bytes) -> None:
        view, kept = memoryview(event), False
        for frame in iter_frames(view, 0, len(view), 1 << 30):
            if frame.type == EventType.PUSH:
                self.pushed += [push.guid for push in iter_pushes(view, frame.body, frame.end)]
                kept = True
            elif frame.type == EventType.CONTROL:
                message = ber.decode(ControlMessage, bytes(schema_message(view, frame.body, frame.end)))
                if message.r_id is not None and message.r_id >= FIRST_REQUEST:
                    self.answers.append(message)
                    kept = True
        if not kept:
            super().append(event)


class Foreign(NamedTuple):
    """A cluster whose node 2 is not healed, and what the primary, node 0, sends to it."""

    cluster: Members
    heard: Heard

    @property
    def primary(self) -> Process:
        return self.cluster.processes[0]

    def request(self, *choices: OpenQueue | ConfigureStream) -> None:
        """Have node 2 send a request, and wait until the primary answers."""
        for number, choice in enumerate(choices, FIRST_REQUEST):
            event = memoryview(build_schema_event(ber.encode(ControlMessage(r_id=number, choice=choice))))
            (frame,) = iter_frames(event, 0, len(event), len(event))
            self.primary.member.receive(2, event, frame)
        self.cluster.run(500)

    @property
    def answers(self) -> list[object]:
        """The answers so far, in order."""
        answers = self.heard.answers
        assert [each.r_id for each in answers] == [*range(FIRST_REQUEST, FIRST_REQUEST + len(answers))]
        return [each.choice for each in answers]

    def heal(self) -> None:
        """Let node 2 have its records."""
        self.cluster.wires[0, 2].events = heard = Heard()
        heard.answers, heard.pushed = self.heard.answers, self.heard.pushed
        self.cluster.until(lambda: 2 in self.primary.member.partitions[0].healed)
        self.cluster.run()


def foreign(*, is_own: bool = False) -> Foreign:
    """A node 2 without records, of the reference unless it `is_own`, and a primary with a message."""
    cluster = members()
    producer = cluster.connect(0)
    producer.open(1, QUEUE, WRITE | ACK)
    producer.put(1, guid(1), b"1")
    cluster.run()
    cluster.kill(2)
    cluster.start(2, MemoryDirectory())
    wire = cluster.wires[0, 2]
    wire.takes_removals = wire.takes_early = is_own
    wire.events = heard = Heard(EventType.PARTITION_SYNC)
    cluster.run(500)
    primary = cluster.processes[0].member.partitions[0]
    assert primary.is_primary
    assert 2 not in primary.healed
    return Foreign(cluster, heard)


def open_of(flags: int = READ, uri: str = QUEUE) -> OpenQueue:
    return OpenQueue(handle_parameters=handle(7, uri, flags))


def consumption() -> ConfigureStream:
    consumer = ConsumerInfo(
        max_unconfirmed_messages=10, max_unconfirmed_bytes=1 << 20, consumer_priority=1, consumer_priority_count=1
    )
    subscription = Subscription(s_id=0, expression=ANY, consumers=(consumer,))
    return ConfigureStream(
        q_id=7, stream_parameters=StreamParameters(app_id="__default", subscriptions=(subscription,))
    )


def test_a_member_of_the_reference_consumes_when_it_is_healed() -> None:
    node = foreign()
    node.request(open_of(), consumption())
    assert node.answers == []
    assert node.heard.pushed == []
    node.heal()
    assert [type(each) for each in node.answers] == [OpenQueueResponse, ConfigureStreamResponse]
    assert node.heard.pushed == [guid(1)]
    assert node.primary.member.queues.opens.held == {}


def test_a_member_that_is_healed_waits_for_nothing() -> None:
    node = foreign()
    node.heal()
    node.request(open_of(), consumption())
    assert [type(each) for each in node.answers] == [OpenQueueResponse, ConfigureStreamResponse]


def test_a_member_of_ours_waits_for_nothing() -> None:
    """Members of ours open queues when they have their copies."""
    node = foreign(is_own=True)
    node.request(open_of())
    assert [type(each) for each in node.answers] == [OpenQueueResponse]


@pytest.mark.parametrize(("flags", "uri"), [(WRITE | ACK, QUEUE), (READ, "bmq://broadcast/q")])
def test_opening_that_gets_no_pushes_from_the_store_waits_for_nothing(flags: int, uri: str) -> None:
    node = foreign()
    node.cluster.connect(0).open(1, uri, WRITE | ACK)
    node.request(open_of(flags, uri))
    assert [type(each) for each in node.answers] == [OpenQueueResponse]


def test_opens_beyond_the_bound_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primary_opens, "HELD_MAX", 0)
    node = foreign()
    node.request(open_of())
    assert [type(each) for each in node.answers] == [OpenQueueResponse]


def test_waiting_openings_are_dropped_with_the_link() -> None:
    node = foreign()
    node.request(open_of(), consumption())
    held = node.primary.member.queues.opens.held
    assert list(held) == [(2, 0)]
    node.cluster.without(2)
    assert held == {}
    node.cluster.start(2, MemoryDirectory())
    node.cluster.until(lambda: 2 in node.primary.member.partitions[0].healed)
    node.cluster.run()
    (app,) = node.primary.node.queues[QUEUE].apps.values()
    assert not app.streams
    assert node.answers == []


def test_waiting_openings_are_refused_when_the_partition_has_another_primary() -> None:
    """One of the reference asks the next primary then."""
    node = foreign()
    node.request(open_of())
    held = node.primary.member.queues.opens.held
    assert held
    node.primary.member.on_primary(0, None, 0)
    node.cluster.run()
    (refusal,) = node.answers
    assert isinstance(refusal, Status)
    assert (refusal.category, refusal.code) == (StatusCategory.CANCELED, ClusterError.NODE_DOWN)
    assert held == {}


def test_an_open_at_a_node_that_is_not_the_primary_is_refused_as_by_the_reference() -> None:
    """A member of the reference asks again after no other category than this."""
    node = foreign()
    node.heal()
    node.primary.member.on_primary(0, None, 0)
    node.request(open_of())
    (refusal,) = node.answers
    assert isinstance(refusal, Status)
    assert (refusal.category, refusal.code) == (StatusCategory.REFUSED, ClusterError.NOT_PRIMARY)
