from __future__ import annotations

from typing import Any

import pytest

from bmqctl.client.protocol.control import ProtocolFault, Requests, Unusable
from bmqctl.client.protocol.events import Closed, Configured, Event, Opened, QueueHandle, Refused, StreamOptions
from bmqctl.client.protocol.lifecycle import Queue
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    OpenQueue,
    OpenQueueResponse,
    RoutingConfiguration,
    Status,
    StatusCategory,
)
from formats.errors import FormatError

URI = "bmq://bmq.test.persistent.priority/orders"
FANOUT = "bmq://bmq.test.persistent.fanout/prices"
SECOND_NS = 1_000_000_000
REFUSED = Status(category=StatusCategory.REFUSED, code=-7, message="no")


class Broker:
    """Takes a session's requests, and gives the answers of the test."""

    def __init__(self) -> None:
        self.asked: list[ControlMessage] = []
        self.requests = Requests(self.asked.append, timeout_ns=5 * SECOND_NS)

    def open(self, uri: str = URI, *, read: bool = True, write: bool = False, now_ns: int = 0) -> QueueHandle:
        return self.requests.open(uri, read=read, write=write, options=StreamOptions(), now_ns=now_ns)

    def opened(self, uri: str = URI, *, read: bool = True, write: bool = False) -> QueueHandle:
        queue = self.open(uri, read=read, write=write)
        while not queue.is_open:
            self.grant()
        self.asked.clear()
        return queue

    @property
    def last(self) -> Any:
        return self.asked[-1].choice

    def answer(self, choice: Any, r_id: int | None = None, now_ns: int = 0) -> list[Event]:
        number = self.asked[-1].r_id if r_id is None else r_id
        return list(self.requests.answered(ControlMessage(r_id=number, choice=choice), now_ns))

    def grant(self, message: ControlMessage | None = None) -> list[Event]:
        message = message or self.asked[-1]
        request = message.choice
        answer: Any
        match request:
            case OpenQueue():
                answer = OpenQueueResponse(
                    original_request=request, routing_configuration=RoutingConfiguration(flags=0)
                )
            case ConfigureStream():
                answer = ConfigureStreamResponse(request=request)
            case CloseQueue():
                answer = CloseQueueResponse()
            case Disconnect():
                answer = DisconnectResponse()
        return self.answer(answer, message.r_id)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_reader_is_open_once_its_stream_is_configured(broker: Broker) -> None:
    queue = broker.open()
    assert isinstance(broker.last, OpenQueue)
    assert broker.grant() == []
    assert isinstance(broker.last, ConfigureStream)
    (subscription,) = broker.last.stream_parameters.subscriptions
    assert broker.requests.subscriptions[subscription.s_id] is queue
    assert broker.grant() == [Opened(queue)]
    assert len(broker.asked) == 2


def test_a_writer_has_no_stream(broker: Broker) -> None:
    queue = broker.open(read=False, write=True)
    assert broker.grant() == [Opened(queue)]
    broker.requests.close(queue, 0)
    assert [type(m.choice) for m in broker.asked] == [OpenQueue, CloseQueue]
    assert broker.grant() == [Closed(queue)]


def test_a_reader_stops_its_stream_before_it_closes(broker: Broker) -> None:
    queue = broker.opened()
    broker.requests.close(queue, 0)
    assert broker.last.stream_parameters.subscriptions == ()
    assert broker.grant() == []
    assert isinstance(broker.last, CloseQueue)
    assert broker.grant() == [Closed(queue)]
    assert broker.requests.subscriptions == {}


def test_a_refused_opening_leaves_nothing(broker: Broker) -> None:
    queue = broker.open()
    assert broker.answer(REFUSED) == [Refused(queue, REFUSED)]
    assert queue.state is Queue.CLOSED
    assert broker.open().uri == queue.uri


def test_a_refused_stream_gives_the_handle_back(broker: Broker) -> None:
    queue = broker.open()
    broker.grant()
    assert broker.answer(REFUSED) == [Refused(queue, REFUSED)]
    assert isinstance(broker.last, CloseQueue)
    assert broker.grant() == []
    assert queue.state is Queue.CLOSED


def test_a_queue_that_cannot_stop_its_stream_is_closed_all_the_same(broker: Broker) -> None:
    queue = broker.opened()
    broker.requests.close(queue, 0)
    assert broker.answer(REFUSED) == []
    assert isinstance(broker.last, CloseQueue)
    assert broker.grant() == [Closed(queue)]


def test_a_configuration_takes_effect_when_it_is_granted(broker: Broker) -> None:
    queue = broker.opened()
    wanted = StreamOptions(max_unconfirmed_messages=7, priority=3)
    broker.requests.configure(queue, wanted, 0)
    assert queue.options == StreamOptions()
    assert broker.grant() == [Configured(queue)]
    assert queue.options == wanted


def test_a_refused_configuration_changes_nothing(broker: Broker) -> None:
    queue = broker.opened()
    broker.requests.configure(queue, StreamOptions(priority=3), 0)
    assert broker.answer(REFUSED) == [Refused(queue, REFUSED)]
    assert queue.is_open
    assert queue.options == StreamOptions()


def test_apps_of_a_queue_share_its_number_and_the_last_closes_it(broker: Broker) -> None:
    foo = broker.opened(f"{FANOUT}?id=foo")
    bar = broker.opened(f"{FANOUT}?id=bar")
    other = broker.opened(URI)
    assert (foo.queue_id, foo.sub_id) == (bar.queue_id, 1)
    assert bar.sub_id == 2
    assert (other.queue_id, other.sub_id) == (1, 0)
    finals = []
    for queue in (foo, bar):
        broker.requests.close(queue, 0)
        broker.grant()
        finals.append(broker.last.is_final)
        broker.grant()
    assert finals == [False, True]


def test_a_request_that_is_not_answered_fails_at_its_deadline(broker: Broker) -> None:
    queue = broker.open(now_ns=100)
    assert broker.requests.deadline_ns == 100 + 5 * SECOND_NS
    assert list(broker.requests.expire(99 + 5 * SECOND_NS)) == []
    (refused,) = broker.requests.expire(100 + 5 * SECOND_NS)
    assert isinstance(refused, Refused)
    assert refused.queue is queue
    assert refused.status.category is StatusCategory.TIMEOUT
    assert broker.requests.deadline_ns is None


def test_an_opening_granted_too_late_is_given_back(broker: Broker) -> None:
    queue = broker.open()
    opening = broker.asked[-1]
    list(broker.requests.expire(6 * SECOND_NS))
    assert broker.grant(opening) == []
    assert isinstance(broker.last, CloseQueue)
    assert broker.last.handle_parameters.q_id == queue.queue_id
    assert broker.grant() == []


def test_a_late_answer_to_anything_else_is_passed_over(broker: Broker) -> None:
    queue = broker.opened()
    broker.requests.configure(queue, StreamOptions(), 0)
    configuring = broker.asked[-1]
    list(broker.requests.expire(6 * SECOND_NS))
    assert broker.grant(configuring) == []
    assert queue.is_open


def test_an_answer_to_nothing_is_a_fault(broker: Broker) -> None:
    with pytest.raises(ProtocolFault, match="request 99"):
        broker.answer(CloseQueueResponse(), r_id=99)


def test_an_answer_of_the_wrong_kind_is_a_fault(broker: Broker) -> None:
    broker.open()
    with pytest.raises(ProtocolFault, match="CloseQueueResponse"):
        broker.answer(CloseQueueResponse())


def test_the_end_of_the_session_closes_all_queues(broker: Broker) -> None:
    queues = [broker.opened(), broker.open(FANOUT, read=False, write=True)]
    assert list(broker.requests.end()) == [Closed(queue) for queue in queues]
    assert broker.requests.deadline_ns is None
    assert all(queue.state is Queue.CLOSED for queue in queues)


def test_a_disconnect_is_answered(broker: Broker) -> None:
    broker.requests.disconnect(0)
    assert not broker.requests.disconnected
    assert broker.grant() == []
    assert broker.requests.disconnected


def test_impossible_requests_are_refused(broker: Broker) -> None:
    with pytest.raises(FormatError):
        broker.open("orders")
    with pytest.raises(Unusable, match="neither"):
        broker.open(read=False)
    queue = broker.open()
    with pytest.raises(Unusable, match="already"):
        broker.open()
    with pytest.raises(Unusable, match="not open"):
        broker.requests.close(queue, 0)
    writer = broker.opened(FANOUT, read=False, write=True)
    with pytest.raises(Unusable, match="not open for reading"):
        broker.requests.configure(writer, StreamOptions(), 0)
