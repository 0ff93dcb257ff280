from __future__ import annotations

import pytest

from bmqctl.client.protocol.events import (
    Ack,
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
from bmqctl.client.protocol.lifecycle import Impossible, Session
from bmqctl.client.protocol.machine import Machine, MachineOptions, Unusable
from formats.bmq.control.messages import OpenQueue, Status, StatusCategory
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.event import HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE, EventType, build_event
from formats.bmq.wire.options import SubQueueInfo, pack_sub_queue_ids, pack_sub_queue_infos
from formats.bmq.wire.push import append_push_with_options
from tests.bmqctl.client.fakes import FEATURES, FakeBroker

URI = "bmq://bmq.test.mem.priority/orders"
SECOND_NS = 1_000_000_000
REFUSAL = Status(category=StatusCategory.NOT_SUPPORTED, code=-5, message="too old")


class Link:
    """A machine and a broker that exchange bytes until neither has more to say."""

    def __init__(self, broker: FakeBroker | None = None, put_batch: int = 1024) -> None:
        self.broker = broker or FakeBroker()
        self.machine = Machine(
            MachineOptions("test", 1, 5 * SECOND_NS, put_batch=put_batch), ClientGuidGenerator(b"client", 0, 0), 0
        )
        self.now_ns = 0

    def run(self) -> list[Event]:
        events: list[Event] = []
        while data := self.machine.data_to_send():
            if reply := self.broker.receive(bytes(data)):
                events += self.machine.receive(reply, self.now_ns)
        return events

    def start(self) -> list[Event]:
        self.machine.start(self.now_ns)
        return self.run()

    def open(self, *, read: bool = True, write: bool = True) -> QueueHandle:
        queue = self.machine.open_queue(URI, read=read, write=write, options=StreamOptions(), now_ns=self.now_ns)
        assert self.run() == [Opened(queue)]
        return queue

    def post(self, queue: QueueHandle, payload: bytes = b"hello", correlation: object = None) -> bytes:
        return self.machine.post(queue, payload, None, compress=False, correlation=correlation, now_ns=self.now_ns)

    def tick(self, seconds: float) -> list[Event]:
        self.now_ns += int(seconds * SECOND_NS)
        return self.machine.tick(self.now_ns)


@pytest.fixture
def link() -> Link:
    link = Link()
    (started,) = link.start()
    assert isinstance(started, Started)
    return link


def test_a_message_is_acked_pushed_and_confirmed(link: Link) -> None:
    queue = link.open()
    guid = link.post(queue, b"hello", "mine")
    acks, pushes = link.run()
    assert acks == Acks([Ack(AckStatus.SUCCESS, guid, "mine", queue)])
    assert isinstance(pushes, Pushes)
    assert [(m.guid, m.payload) for m in pushes.messages] == [(guid, b"hello")]
    link.machine.confirm(queue, guid)
    assert link.run() == []
    assert link.broker.confirmed == [(queue.queue_id, guid, 0)]


def test_posts_of_one_turn_go_out_in_one_event(link: Link) -> None:
    queue = link.open()
    link.broker.heard.clear()
    for _ in range(5):
        link.post(queue)
    link.run()
    assert link.broker.heard == [EventType.PUT]
    assert len(link.broker.posted) == 5


def test_the_batch_bounds_an_event() -> None:
    link = Link(put_batch=2)
    link.start()
    queue = link.open()
    link.broker.heard.clear()
    for _ in range(5):
        link.post(queue)
    link.run()
    assert link.broker.heard == [EventType.PUT] * 3


def test_a_large_event_is_closed_although_it_has_room(link: Link) -> None:
    queue = link.open()
    link.broker.heard.clear()
    for _ in range(3):
        link.post(queue, bytes(1 << 20))
    link.run()
    assert link.broker.heard == [EventType.PUT] * 3


def test_nothing_overtakes(link: Link) -> None:
    queue = link.open()
    link.broker.heard.clear()
    guid = link.post(queue)
    link.machine.confirm(queue, guid)
    link.post(queue)
    link.machine.close_queue(queue, 0)
    link.run()
    assert link.broker.heard[:4] == [EventType.PUT, EventType.CONFIRM, EventType.PUT, EventType.CONTROL]


@pytest.mark.parametrize(
    ("code", "status"), [(1, AckStatus.LIMIT_MESSAGES), (5, AckStatus.UNKNOWN), (9, AckStatus.UNKNOWN)]
)
def test_a_nack_says_why(link: Link, code: int, status: AckStatus) -> None:
    queue = link.open()
    link.broker.ack_status = code
    guid = link.post(queue, correlation=7)
    assert link.run() == [Acks([Ack(status, guid, 7, queue)])]


def test_an_ack_for_a_message_that_we_did_not_post_has_no_correlation(link: Link) -> None:
    queue = link.open()
    assert link.machine.receive(link.broker.ack(queue.queue_id, [b"g" * 16]), 0) == [
        Acks([Ack(AckStatus.SUCCESS, b"g" * 16, None, queue)])
    ]


def test_a_push_that_crossed_a_close_is_dropped(link: Link) -> None:
    queue = link.open()
    subscription = next(iter(queue.subscriptions))
    link.machine.close_queue(queue, 0)
    assert link.run() == [Closed(queue)]
    assert link.machine.receive(link.broker.push(queue.queue_id, subscription, b"g" * 16, b"late"), 0) == []


def test_a_disconnect_ends_the_session(link: Link) -> None:
    queue = link.open()
    link.machine.disconnect(0)
    assert link.run() == [Closed(queue), Stopped(None)]
    assert link.machine.state is Session.STOPPED
    assert link.machine.deadline_ns is None


def test_a_broker_that_does_not_answer_the_disconnect_does_not_hold_us(link: Link) -> None:
    link.machine.disconnect(0)
    link.machine.data_to_send()
    assert link.tick(4.9) == []
    assert link.tick(0.1) == [Stopped(None)]


def test_a_refusal_ends_the_session() -> None:
    link = Link(FakeBroker(refusal=REFUSAL))
    assert link.start() == [Stopped("the broker refused us: too old")]


def test_a_broker_without_configure_stream_is_too_old() -> None:
    link = Link(FakeBroker(features="PROTOCOL_ENCODING:BER"))
    (stopped,) = link.start()
    assert isinstance(stopped, Stopped)
    assert "configureStream" in (stopped.fault or "")


def test_a_broker_that_knows_no_ber_is_spoken_to_in_json() -> None:
    link = Link(FakeBroker(features=FEATURES.replace("BER,JSON", "JSON")))
    link.start()
    link.open()
    assert isinstance(link.broker.asked[0], OpenQueue)
    assert link.machine.state is Session.STARTED


def test_a_broker_that_does_not_answer_our_identity_is_given_up() -> None:
    link = Link()
    link.machine.start(0)
    assert link.machine.deadline_ns == 5 * SECOND_NS
    assert link.tick(4.9) == []
    assert link.tick(0.1) == [Stopped("the broker did not answer our identity")]


def test_a_heartbeat_is_answered(link: Link) -> None:
    assert link.machine.receive(HEARTBEAT_REQUEST, 0) == []
    assert bytes(link.machine.data_to_send()) == HEARTBEAT_RESPONSE


def test_a_silent_broker_is_asked_and_then_given_up() -> None:
    link = Link(FakeBroker(heartbeat_interval_ms=1000, max_missed_heartbeats=3))
    link.start()
    link.tick(1)  # it has spoken since the last check
    sent = []
    for _ in range(3):
        assert link.tick(1) == []
        sent.append(bytes(link.machine.data_to_send()))
    assert sent == [HEARTBEAT_REQUEST] * 3
    assert link.tick(1) == [Stopped("the broker missed 3 heartbeats")]


def test_a_broker_without_heartbeats_may_be_silent() -> None:
    link = Link(FakeBroker(heartbeat_interval_ms=1000, max_missed_heartbeats=0))
    link.start()
    for _ in range(10):
        assert link.tick(1) == []
    assert bytes(link.machine.data_to_send()) == b""
    assert link.machine.state is Session.STARTED


def test_a_sign_of_life_starts_the_count_again() -> None:
    link = Link(FakeBroker(heartbeat_interval_ms=1000, max_missed_heartbeats=2))
    link.start()
    for _ in range(10):
        assert link.tick(1) == []
        link.run()  # the broker answers
    assert link.machine.state is Session.STARTED


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x7f" + bytes(7),
        build_event(EventType.CONTROL, b"\x30\x80"),
        build_event(EventType.PUSH, b"\xff" * 32),
        build_event(EventType.ACK, b"\x16\0\0\0" + bytes(23)),
        build_event(EventType.PUT, b""),
        build_event(EventType.ELECTOR, b""),
    ],
)
def test_garbage_ends_the_session(link: Link, garbage: bytes) -> None:
    queue = link.open()
    *_, closed, stopped = link.machine.receive(garbage, 0)
    assert closed == Closed(queue)
    assert isinstance(stopped, Stopped)
    assert stopped.fault is not None
    assert stopped.fault.startswith("not understood: ")
    assert link.machine.receive(HEARTBEAT_REQUEST, 0) == []


def test_data_before_the_negotiation_is_a_fault() -> None:
    link = Link()
    link.machine.start(0)
    (stopped,) = link.machine.receive(link.broker.ack(0, [bytes(16)]), 0)
    assert isinstance(stopped, Stopped)


def test_a_lost_connection_is_reported_once(link: Link) -> None:
    queue = link.open()
    assert link.machine.lost("gone") == [Closed(queue), Stopped("gone")]
    assert link.machine.lost("gone") == []
    assert link.tick(100) == []


def test_impossible_actions_are_refused(link: Link) -> None:
    reader = link.open(write=False)
    with pytest.raises(Unusable, match="not open for writing"):
        link.post(reader)
    link.machine.close_queue(reader, 0)
    link.run()
    writer = link.open(read=False)
    with pytest.raises(ValueError, match="limit"):
        link.post(writer, bytes((64 << 20) + 1))
    with pytest.raises(Unusable, match="not open"):
        link.machine.confirm(reader, bytes(16))
    link.machine.disconnect(0)
    with pytest.raises(Unusable, match="session is disconnecting"):
        link.machine.open_queue(URI, read=True, write=False, options=StreamOptions(), now_ns=0)
    with pytest.raises(Impossible):
        link.machine.disconnect(0)


def test_messages_of_an_event_go_to_their_subscriptions_in_their_order(link: Link) -> None:
    queue = link.open()
    (mine,) = queue.subscriptions
    other = mine + 100
    body = bytearray()

    def push(options: bytes, data: bytes) -> None:
        append_push_with_options(body, queue.queue_id, b"g" * 16, options, data, 0, 0, 0)

    push(pack_sub_queue_ids([mine]), b"1")
    push(pack_sub_queue_ids([mine]), b"2")
    push(pack_sub_queue_ids([other]), b"-")
    push(pack_sub_queue_ids([mine]), b"3")
    push(pack_sub_queue_ids([other, mine]), b"4")
    push(pack_sub_queue_infos([SubQueueInfo(mine, 1)]), b"5")
    push(pack_sub_queue_ids([mine]), b"6")
    (pushes,) = link.machine.receive(build_event(EventType.PUSH, body), 0)
    assert isinstance(pushes, Pushes)
    assert pushes.queue is queue
    assert [message.payload for message in pushes.messages] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert {message.subscription_id for message in pushes.messages} == {mine}
    assert sum(message.wire_size for message in pushes.messages) == len(body) - 44
