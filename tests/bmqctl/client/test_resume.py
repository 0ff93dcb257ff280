"""A session that outlives its connections: what happens between them, and what the next broker hears."""

from __future__ import annotations

import pytest

from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import (
    Ack,
    Acks,
    Closed,
    Configured,
    ConnectionLost,
    Event,
    Opened,
    QueueHandle,
    Reconnected,
    Refused,
    Reopened,
    Restored,
    Started,
    Stopped,
    StreamOptions,
    StreamSubscription,
)
from bmqctl.client.protocol.guid import ClientGuidGenerator
from bmqctl.client.protocol.lifecycle import Queue, Session
from bmqctl.client.protocol.machine import Machine, MachineOptions
from formats.bmq.control.messages import (
    CloseQueue,
    ConfigureStream,
    Disconnect,
    ExpressionVersion,
    OpenQueue,
    Status,
    StatusCategory,
)
from formats.bmq.wire.ack import AckStatus
from tests.bmqctl.client.fakes import FakeBroker

URI = "bmq://bmq.test.mem.priority/orders"
OTHER = "bmq://bmq.test.mem.priority/invoices"
SECOND_NS = 1_000_000_000
TIMEOUT_S = 5
REFUSAL = Status(category=StatusCategory.REFUSED, code=-6, message="gone")


class Client:
    """A machine that is to resume, and the broker that it talks to at the moment."""

    def __init__(self, broker: FakeBroker | None = None) -> None:
        self.broker = broker or FakeBroker()
        options = MachineOptions("test", 1, TIMEOUT_S * SECOND_NS, resume=True)
        self.machine = Machine(options, ClientGuidGenerator(b"client", 0, 0), 0)
        self.now_ns = 0

    def run(self) -> list[Event]:
        events: list[Event] = []
        while data := self.machine.data_to_send():
            if reply := self.broker.receive(bytes(data)):
                events += self.machine.receive(reply, self.now_ns)
        return events

    def connect(self, broker: FakeBroker | None = None) -> list[Event]:
        self.broker = broker or FakeBroker()
        self.machine.start(self.now_ns)
        return self.run()

    def ask(self, uri: str = URI, *, read: bool = True, write: bool = True) -> QueueHandle:
        options = StreamOptions()
        return self.machine.open_queue(uri, read=read, write=write, options=options, now_ns=self.now_ns)

    def open(self, uri: str = URI, *, read: bool = True, write: bool = True) -> QueueHandle:
        queue = self.ask(uri, read=read, write=write)
        assert self.run() == [Opened(queue)]
        return queue

    def post(self, queue: QueueHandle, payload: bytes = b"hello", *, ack: bool = True) -> bytes:
        return self.machine.post(queue, payload, None, compress=False, correlation=payload, now_ns=self.now_ns, ack=ack)

    def cut(self) -> list[Event]:
        return self.machine.lost("cut")

    def tick(self, seconds: float) -> list[Event]:
        self.now_ns += int(seconds * SECOND_NS)
        return self.machine.tick(self.now_ns)


@pytest.fixture
def client() -> Client:
    client = Client()
    assert [type(event) for event in client.connect()] == [Started]
    return client


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_queues_are_reopened_and_what_is_not_acked_is_sent_again(client: Client) -> None:
    client.broker.mute_puts = True
    queue = client.open()
    lost = client.post(queue, b"lost with the connection")
    client.run()
    assert client.cut() == [ConnectionLost("cut")]
    assert (client.machine.state, queue.state) == (Session.RECONNECTING, Queue.PENDING)
    held = client.post(queue, b"posted without one")
    assert not client.machine.data_to_send()
    events = client.connect()
    assert kinds(events)[:3] == [Reconnected, Reopened, Restored]
    assert client.broker.posted == [(lost, b"lost with the connection"), (held, b"posted without one")]
    acks = [ack for event in events if isinstance(event, Acks) for ack in event.acks]
    assert [(ack.guid, ack.correlation) for ack in acks] == [
        (lost, b"lost with the connection"),
        (held, b"posted without one"),
    ]


def test_post_without_ack_is_sent_again_only_if_it_was_not_sent(client: Client) -> None:
    queue = client.open()
    client.post(queue, b"sent", ack=False)
    client.run()
    client.cut()
    client.post(queue, b"held", ack=False)
    client.connect()
    assert [data for _, data in client.broker.posted] == [b"held"]
    client.cut()
    client.connect()
    assert client.broker.posted == []


def test_a_queue_keeps_its_subscriptions(client: Client) -> None:
    wanted = StreamSubscription(expression="x > 1", priority=2, correlation="mine")
    options = StreamOptions(7, 700, 1, (wanted, StreamSubscription()))
    queue = client.machine.open_queue(URI, read=True, write=False, options=options, now_ns=0)
    assert client.run() == [Opened(queue)]
    asked = client.broker.asked[-1].stream_parameters.subscriptions
    assert [(each.expression.text, each.expression.version) for each in asked] == [
        ("x > 1", ExpressionVersion.VERSION_1),
        ("", ExpressionVersion.UNDEFINED),
    ]
    consumers = [each.consumers[0] for each in asked]
    assert [(each.max_unconfirmed_messages, each.consumer_priority) for each in consumers] == [(7, 2), (7, 1)]
    assert list(queue.subscriptions.values()) == [wanted, StreamSubscription()]
    before = set(queue.subscriptions)
    client.cut()
    client.connect()
    again = client.broker.asked[-1].stream_parameters.subscriptions
    assert [each.expression for each in again] == [each.expression for each in asked]
    assert set(queue.subscriptions) == {each.s_id for each in again}
    assert not before & set(queue.subscriptions)


@pytest.mark.parametrize("mute", [OpenQueue, ConfigureStream])
def test_an_opening_goes_on_with_the_next_broker(client: Client, mute: type) -> None:
    client.broker.mute = (mute,)
    queue = client.ask()
    assert client.run() == []
    assert client.cut() == [ConnectionLost("cut")]
    assert queue.state is Queue.OPENING
    assert kinds(client.connect()) == [Reconnected, Restored, Opened]
    assert kinds_asked(client) == [OpenQueue, ConfigureStream]


def kinds_asked(client: Client) -> list[type]:
    return [type(request) for request in client.broker.asked]


def test_an_opening_without_connection_waits_for_one_or_for_its_time(client: Client) -> None:
    client.cut()
    queue = client.ask()
    other = client.ask(OTHER, read=False)
    assert kinds(client.connect()) == [Reconnected, Restored, Opened, Opened]
    assert queue.is_open
    assert other.is_open
    client.cut()
    late = client.ask("bmq://bmq.test.mem.priority/late")
    assert client.tick(TIMEOUT_S - 1) == []
    assert client.machine.deadline_ns == TIMEOUT_S * SECOND_NS
    (refused,) = client.tick(1)
    assert isinstance(refused, Refused)
    assert (refused.queue, refused.status.category, late.state) == (late, StatusCategory.TIMEOUT, Queue.CLOSED)


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_configuration_comes_about_by_reopening(client: Client, asked_before: bool) -> None:
    queue = client.open()
    client.broker.mute = (ConfigureStream,)
    options = StreamOptions(9, 900, 9)
    if asked_before:
        client.machine.configure_queue(queue, options, client.now_ns)
        client.run()
    client.cut()
    if not asked_before:
        client.machine.configure_queue(queue, options, client.now_ns)
    assert kinds(client.connect()) == [Reconnected, Reopened, Configured, Restored]
    (subscription,) = client.broker.asked[-1].stream_parameters.subscriptions
    assert subscription.consumers[0].max_unconfirmed_messages == 9


def test_a_configuration_may_run_out_of_time_without_connection(client: Client) -> None:
    queue = client.open()
    client.cut()
    client.machine.configure_queue(queue, StreamOptions(9), client.now_ns)
    (refused,) = client.tick(TIMEOUT_S)
    assert isinstance(refused, Refused)
    assert queue.state is Queue.PENDING


@pytest.mark.parametrize("mute", [ConfigureStream, CloseQueue])
def test_a_closing_ends_with_the_connection(client: Client, mute: type) -> None:
    queue = client.open()
    client.broker.mute = (mute,)
    client.broker.mute_puts = True
    guid = client.post(queue)
    assert client.machine.close_queue(queue, 0) == []
    client.run()
    nack, refused, lost = client.cut()
    assert nack == Acks([Ack(AckStatus.UNKNOWN, guid, b"hello", queue)])
    assert isinstance(refused, Refused)
    assert refused.status.category is StatusCategory.CANCELED
    assert lost == ConnectionLost("cut")
    assert queue.state is Queue.CLOSED
    client.connect()
    assert client.broker.asked == []


def test_a_queue_may_be_closed_without_connection(client: Client) -> None:
    queue = client.open()
    client.cut()
    guid = client.post(queue)
    nack, closed = client.machine.close_queue(queue, 0)
    assert nack == Acks([Ack(AckStatus.UNKNOWN, guid, b"hello", queue)])
    assert closed == Closed(queue)
    assert kinds(client.connect()) == [Reconnected, Restored]
    assert client.broker.asked == []


def test_posts_to_a_queue_that_is_closed_are_nacked(client: Client) -> None:
    client.broker.mute_puts = True
    queue, other = client.open(), client.open(OTHER)
    guid = client.post(queue)
    client.post(other, b"other")
    client.run()
    client.machine.close_queue(queue, 0)
    assert client.run() == [Acks([Ack(AckStatus.UNKNOWN, guid, b"hello", queue)]), Closed(queue)]


def test_a_queue_that_is_refused_does_not_hold_up_the_others(client: Client) -> None:
    queue = client.open()
    client.cut()
    guid = client.post(queue)
    events = client.connect(FakeBroker(refuse_queues=REFUSAL))
    assert events[1:] == [
        Acks([Ack(AckStatus.UNKNOWN, guid, b"hello", queue)]),
        Refused(queue, REFUSAL),
        Restored(),
    ]
    assert queue.state is Queue.CLOSED
    again = client.ask()
    client.broker.refuse_queues = None
    assert client.run() == [Opened(again)]


def test_a_broker_that_does_not_reopen_in_time_is_left(client: Client) -> None:
    queue = client.open()
    client.cut()
    assert kinds(client.connect(FakeBroker(mute=(OpenQueue,)))) == [Reconnected]
    (lost,) = client.tick(TIMEOUT_S)
    assert isinstance(lost, ConnectionLost)
    assert queue.state is Queue.PENDING
    assert kinds(client.connect()) == [Reconnected, Reopened, Restored]


def test_a_connection_that_is_lost_while_queues_are_reopened(client: Client) -> None:
    queue = client.open()
    for mute in (OpenQueue, ConfigureStream):
        client.cut()
        assert kinds(client.connect(FakeBroker(mute=(mute,)))) == [Reconnected]
    assert queue.state is Queue.REOPENING_STREAM
    client.cut()
    assert kinds(client.connect()) == [Reconnected, Reopened, Restored]


@pytest.mark.parametrize("mute", [OpenQueue, CloseQueue])
def test_after_a_timeout_nobody_knows_what_the_broker_did(client: Client, mute: type) -> None:
    queue = client.open(read=False)
    client.broker.mute = (mute,)
    if mute is OpenQueue:
        queue = client.ask(OTHER, read=False)
    else:
        client.machine.close_queue(queue, 0)
    client.run()
    refused, lost = client.tick(TIMEOUT_S)
    assert isinstance(refused, Refused)
    assert (refused.queue, refused.status.category) == (queue, StatusCategory.TIMEOUT)
    assert isinstance(lost, ConnectionLost)


def test_a_configuration_that_is_not_answered_costs_no_connection(client: Client) -> None:
    queue = client.open()
    client.broker.mute = (ConfigureStream,)
    client.machine.configure_queue(queue, StreamOptions(3), 0)
    client.run()
    assert kinds(client.tick(TIMEOUT_S)) == [Refused]
    assert client.machine.state is Session.STARTED


def test_post_that_the_broker_would_not_deduplicate_any_more_is_nacked() -> None:
    client = Client()
    client.connect(FakeBroker(mute_puts=True, deduplication_time_ms=2000))
    queue = client.open()
    first = client.post(queue, b"first")
    client.now_ns += SECOND_NS
    client.post(queue, b"second")
    client.run()
    client.cut()
    assert client.tick(1) == []
    assert client.tick(0.5) == [Acks([Ack(AckStatus.UNKNOWN, first, b"first", queue)])]
    client.connect()
    assert [data for _, data in client.broker.posted] == [b"second"]


def test_a_silent_broker_is_left() -> None:
    client = Client()
    client.connect(FakeBroker(heartbeat_interval_ms=1000, max_missed_heartbeats=2))
    events: list[Event] = []
    for _ in range(4):
        events += client.tick(1)
        client.machine.data_to_send()
    assert events == [ConnectionLost("the broker missed 2 heartbeats", silent=True)]
    assert kinds(client.connect()) == [Reconnected, Restored]


@pytest.mark.parametrize("connected", [True, False])
def test_the_end_leaves_no_post_without_an_answer(client: Client, connected: bool) -> None:
    client.broker.mute_puts = True
    queue = client.open()
    guid = client.post(queue)
    client.run()
    if not connected:
        client.cut()
    events = client.machine.disconnect(0)
    events += client.run()
    assert events == [Acks([Ack(AckStatus.UNKNOWN, guid, b"hello", queue)]), Closed(queue), Stopped(None)]
    assert kinds_asked(client)[-1] is (Disconnect if connected else ConfigureStream)


def test_a_first_connection_that_fails_is_tried_again() -> None:
    client = Client()
    assert client.connect(FakeBroker(refusal=REFUSAL)) == []
    assert client.machine.state is Session.RECONNECTING
    with pytest.raises(Unusable, match="reconnecting"):
        client.ask()
    assert kinds(client.connect()) == [Started]


def test_bytes_that_are_no_protocol_cost_the_connection_only(client: Client) -> None:
    (lost,) = client.machine.receive(b"\xff" * 64, 0)
    assert isinstance(lost, ConnectionLost)
    assert lost.fault.startswith("not understood")
    # Bytes of the old connection are not prepended to the bytes of the new one.
    assert kinds(client.connect()) == [Reconnected, Restored]


def test_the_last_goodbye_needs_no_answer(client: Client) -> None:
    client.broker.mute = (Disconnect,)
    client.machine.disconnect(0)
    client.run()
    assert client.cut() == [Stopped("cut")]


def test_giving_up_ends_it_at_once(client: Client) -> None:
    queue = client.open()
    assert client.machine.give_up("enough") == [Closed(queue), Stopped("enough")]
    assert client.machine.give_up("again") == []
