"""Requests about queues that take their time: answered in order per queue, given back if nobody waits any longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import Opened
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ControlMessage,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import build_schema_event
from tests.broker.bmq.rig import READ, WRITE, Client, handle, start

URI = "bmq://priority/q"


class Slow:
    """Holds back the opening of queues."""

    def __init__(self, client: Client) -> None:
        self.held: list[Callable[[], None]] = []
        self._open = client.node.open_queue
        client.session.client.requests._host = self
        self.routing_flags = client.node.routing_flags

    def open_queue(self, parameters: QueueHandleParameters, opened: Opened) -> None:
        self.held.append(lambda: self._open(parameters, opened))

    def go_on(self) -> None:
        self.held.pop(0)()


@pytest.fixture
def client() -> Client:
    return start().connect()


def ask(client: Client, number: int, choice: OpenQueue | CloseQueue) -> None:
    client.send(build_schema_event(ber.encode(ControlMessage(r_id=number, choice=choice))))


def answers(client: Client) -> list[tuple[int | None, type]]:
    return [(each.r_id, type(each.choice)) for each in client._pick(ControlMessage)]


def opening(queue_id: int, flags: int = READ, uri: str = URI) -> OpenQueue:
    return OpenQueue(handle_parameters=handle(queue_id, uri, flags))


def closing(queue_id: int, flags: int = READ) -> CloseQueue:
    return CloseQueue(handle_parameters=handle(queue_id, URI, flags), is_final=True)


def test_one_queue_answers_in_order_another_does_not_wait(client: Client) -> None:
    slow = Slow(client)
    ask(client, 1, opening(0))
    ask(client, 2, closing(0))
    ask(client, 3, opening(0))
    ask(client, 4, opening(1, uri=URI + "2"))
    assert answers(client) == []
    second = slow.held.pop(1)
    second()
    assert answers(client) == [(4, OpenQueueResponse)]
    slow.go_on()
    assert answers(client) == [(1, OpenQueueResponse), (2, CloseQueueResponse)]
    slow.go_on()
    assert answers(client) == [(3, OpenQueueResponse)]


@pytest.mark.slow
def test_many_requests_behind_one_that_takes_its_time(client: Client) -> None:
    slow = Slow(client)
    ask(client, 0, opening(0))
    for number in range(1, 5001):
        ask(client, number, closing(0))
    slow.go_on()
    found = answers(client)
    assert found[:3] == [(0, OpenQueueResponse), (1, CloseQueueResponse), (2, Status)]
    assert len(found) == 5001


def test_a_refusal_that_comes_late(client: Client) -> None:
    held: list[Opened] = []
    slow = Slow(client)
    slow.open_queue = lambda parameters, opened: held.append(opened)  # type: ignore[method-assign]
    ask(client, 1, opening(0))
    ask(client, 2, closing(0))
    held[0](Refusal(StatusCategory.NOT_READY, "not now", -1))
    assert answers(client) == [(1, Status), (2, Status)]


@pytest.mark.parametrize("flags", [READ, WRITE, READ | WRITE])
def test_disconnected_client_gives_back_the_queues_it_had_asked_for(
    client: Client, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(client)
    ask(client, 1, opening(0, flags))
    client.drop()
    back: list[object] = []
    monkeypatch.setattr(Queue, "give_back_reads", lambda _, app_id, count: back.append((app_id, count)))
    monkeypatch.setattr(Queue, "give_back_writes", lambda _, count: back.append(count))
    slow.go_on()
    assert back == [("__default", 1)] * bool(flags & READ) + [1] * bool(flags & WRITE)
    assert not client.node.queues["bmq://priority/q"].is_open


class Closing:
    """Holds back the answer to a close request as a queue does that is served elsewhere."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[Callable[[], None]] = []
        monkeypatch.setattr(Queue, "after_closing", lambda queue, app_id, closed: self.held.append(closed))


def test_a_close_request_is_answered_when_the_queue_is_closed_elsewhere(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Closing(client, monkeypatch)
    ask(client, 1, opening(0))
    ask(client, 2, closing(0))
    ask(client, 3, opening(0))
    assert answers(client) == [(1, OpenQueueResponse)]
    elsewhere.held.pop()()
    assert answers(client) == [(2, CloseQueueResponse), (3, OpenQueueResponse)]


def test_disconnected_client_is_not_notified_of_a_closed_queue(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Closing(client, monkeypatch)
    ask(client, 1, opening(0))
    ask(client, 2, closing(0))
    client.drop()
    elsewhere.held.pop()()
    assert answers(client) == [(1, OpenQueueResponse)]
