"""Requests of a relay to its upstreams, and their states: a walk over the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.config import ReopenPace
from broker.bmq.links.requests import Answered
from broker.bmq.queue.handles import Refusal
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.handles.handle_requests import HandleRequests
from broker.bmq.relay.upstream import TRANSITIONS, UpstreamState, UpstreamTrigger
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import EventType
from formats.bmq.control.messages import (
    CloseQueue,
    ConfigureStream,
    OpenQueue,
    OpenQueueResponse,
    RoutingConfiguration,
    Status,
    StatusCategory,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.control.messages import Expression as ExpressionInfo
from tests.broker.bmq.rig import ACK, READ, WRITE, handle

URI = "bmq://priority/q"
WANTED = (Subscription(s_id=1, expression=ExpressionInfo(text="")),)


@dataclass
class Upstream:
    """Answers when the test says so."""

    description: str = "upstream"
    is_up: bool = True
    takes_early: bool = True
    asked: list[tuple[object, Answered]] = field(default_factory=list)
    requests: int = 0

    def request(self, choice: object, answered: Answered) -> int:
        self.asked.append((choice, answered))
        self.requests += 1
        return self.requests

    def knows_opens(self) -> None:
        """Do nothing."""

    def fail(self, error: Exception) -> None:
        raise error

    def event(self, kind: EventType, head: bytes = b"") -> bytearray:
        raise AssertionError("nothing is sent here")

    def take(self) -> list[object]:
        return [choice for choice, _ in self.asked]

    def answer(self, status: Status | None = None) -> None:
        """Answer all that was asked so far."""
        asked, self.asked = self.asked, []
        for choice, answered in asked:
            if isinstance(choice, OpenQueue) and status is None:
                routing = RoutingConfiguration(flags=2)
                answered(OpenQueueResponse(original_request=choice, routing_configuration=routing))
            else:
                answered(status)


class Hop:
    def __init__(self) -> None:
        self.now = Now(0, 1000)
        self.timers = Timers()
        self.opened = 0
        self.late: list[str] = []
        self.given_up: list[str] = []
        self.opens = ClientHandles(URI, 5)
        self.openings = HandleRequests(self.opens, self.now, self.timers, self, ReopenPace(1234, 2))
        self.outcomes: list[Refusal | None] = []

    # -- see `OpeningsListener`

    def send_kept(self, sent: Callable[[], None]) -> None:
        self.opened += 1
        sent()

    def learn(self, response: OpenQueueResponse) -> None:
        """Do nothing."""

    def reads(self, app_id: str) -> None:
        self.late.append(app_id)

    def asked(self, app_id: str) -> None:
        self.given_up.append(app_id)

    # -- actions

    def open(self, flags: int) -> None:
        self.openings.open(handle(0, URI, flags), self.outcomes.append)

    @property
    def state(self) -> UpstreamState:
        return self.opens.state

    def wait(self, ms: int = 200) -> None:
        self.now.ms += ms
        self.timers.run(self.now.ms)


def reach(state: UpstreamState) -> tuple[Hop, Upstream]:
    """A hop in that state, with a writer and a reader."""
    hop, first, upstream = Hop(), Upstream(), Upstream()
    hop.openings.found(first)
    hop.open(READ)
    hop.open(WRITE | ACK)
    first.answer()
    hop.openings.configure("__default", WANTED, lambda: None)
    assert hop.outcomes == [None, None]
    hop.openings.lost()
    if state is not UpstreamState.NONE:
        hop.openings.found(upstream)
    if state is UpstreamState.OPEN:
        upstream.answer()
    assert hop.state is state
    return hop, upstream


ACTIONS: dict[UpstreamTrigger, Callable[[Hop, Upstream], None]] = {
    UpstreamTrigger.FOUND: lambda hop, upstream: hop.openings.found(upstream),
    UpstreamTrigger.OPENED: lambda hop, upstream: upstream.answer(),
    UpstreamTrigger.LOST: lambda hop, upstream: hop.openings.lost(),
}


@pytest.mark.parametrize(("state", "trigger"), TRANSITIONS, ids=lambda each: each.name)
def test_table(state: UpstreamState, trigger: UpstreamTrigger) -> None:
    hop, upstream = reach(state)
    ACTIONS[trigger](hop, upstream)
    assert hop.state is TRANSITIONS[state, trigger]


@pytest.mark.parametrize("state", [UpstreamState.OPENING, UpstreamState.OPEN])
def test_another_upstream_at_once(state: UpstreamState) -> None:
    hop, old = reach(state)
    old.asked.clear()
    new = Upstream()
    hop.openings.found(new)
    # The old one is left in order: it may be the next one again.
    assert old.take() == [
        CloseQueue(handle_parameters=handle(5, URI, READ)),
        CloseQueue(handle_parameters=handle(5, URI, WRITE | ACK), is_final=True),
    ]
    old.answer()
    states = [hop.state]
    new.answer()
    assert [*states, hop.state] == [UpstreamState.OPENING, UpstreamState.OPEN]


def test_an_upstream_without_a_link_is_told_nothing() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    upstream.asked.clear()
    upstream.is_up = False
    hop.openings.lost()
    assert upstream.take() == []


def test_open_apps_are_opened_again_and_then_configured() -> None:
    hop, upstream = reach(UpstreamState.OPENING)
    # One request for an app, and the writers with that of the default app.
    assert upstream.take() == [OpenQueue(handle_parameters=handle(5, URI, READ | WRITE))]
    opened = hop.opened
    upstream.answer()
    assert hop.opened == opened + 1
    ((choice, _),) = upstream.asked
    assert isinstance(choice, ConfigureStream)
    assert choice.stream_parameters.subscriptions == WANTED


@pytest.mark.parametrize(
    ("category", "code"),
    [
        (StatusCategory.NOT_READY, -1),
        (StatusCategory.TIMEOUT, -1),
        (StatusCategory.REFUSED, ClusterError.STOPPING),
        (StatusCategory.REFUSED, ClusterError.NOT_PRIMARY),
        (StatusCategory.REFUSED, ClusterError.UNKNOWN_QUEUE),
    ],
)
def test_an_upstream_that_is_not_ready_is_asked_again(category: StatusCategory, code: int) -> None:
    hop, upstream = reach(UpstreamState.OPENING)
    upstream.answer(Status(category=category, code=code))
    states = [hop.state]
    assert upstream.take() == []
    hop.wait()
    assert len(upstream.take()) == 1
    upstream.answer()
    assert [*states, hop.state] == [UpstreamState.OPENING, UpstreamState.OPEN]


def test_opening_without_an_upstream_waits() -> None:
    hop, _ = reach(UpstreamState.NONE)
    hop.open(READ)
    hop.wait()
    assert len(hop.outcomes) == 2
    upstream = Upstream()
    hop.openings.found(upstream)
    upstream.answer()
    # After everything that was open before.
    assert [type(choice) for choice in upstream.take()] == [ConfigureStream, OpenQueue]
    upstream.answer()
    assert hop.outcomes == [None, None, None]
    assert hop.opens.consumers["__default"].readers == 2


def test_an_answer_of_an_upstream_that_was_left_counts_for_nothing() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    upstream.asked.clear()
    hop.open(READ)
    hop.openings.lost()
    upstream.answer()
    assert len(hop.outcomes) == 2
    other = Upstream()
    hop.openings.found(other)
    other.answer()
    other.answer()
    assert hop.outcomes == [None, None, None]


def test_openings_under_way_are_closed_at_the_old_upstream() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    upstream.asked.clear()
    hop.open(READ)
    hop.open(READ)
    answered = upstream.asked.pop()[1]
    answered(Status(category=StatusCategory.REFUSED, code=0, message="no"))
    hop.openings.lost()
    # The two that it had, and the one that it will find open when it reads this.
    assert upstream.take()[1:] == [
        CloseQueue(handle_parameters=handle(5, URI, READ)),
        CloseQueue(handle_parameters=handle(5, URI, WRITE | ACK)),
        CloseQueue(handle_parameters=handle(5, URI, READ), is_final=True),
    ]


def test_a_refusal_reaches_the_client() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    upstream.asked.clear()
    hop.openings.open(handle(0, "bmq://priority/q?id=x", READ), hop.outcomes.append)
    upstream.answer(Status(category=StatusCategory.UNKNOWN, code=-7, message="no"))
    refusal = hop.outcomes[-1]
    assert refusal is not None
    assert refusal.status == Status(category=StatusCategory.UNKNOWN, code=-7, message="no")


def test_configuration_waits_no_longer_than_the_upstream_takes() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    told: list[str] = []
    hop.openings.configure("__default", (), lambda: told.append("configured"))
    assert told == []
    hop.openings.lost()
    assert told == ["configured"]
    upstream.answer()
    assert told == ["configured"]


def test_last_handle_closes_the_upstream() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    upstream.asked.clear()
    hop.openings.give_back_reads("__default", 1)
    hop.openings.give_back_writes(1)
    assert [type(choice) for choice in upstream.take()] == [ConfigureStream, CloseQueue, CloseQueue]
    assert hop.openings.is_unused


@pytest.mark.parametrize("state", [UpstreamState.OPEN, UpstreamState.OPENING])
@pytest.mark.parametrize("status", [None, Status(category=StatusCategory.TIMEOUT, code=0, message="late")])
def test_closing_waits_for_the_upstream_whatever_it_answers(state: UpstreamState, status: Status | None) -> None:
    hop, upstream = reach(state)
    asked = len(upstream.asked)
    told: list[str] = []
    hop.openings.after_closing(lambda: told.append("nothing was closed"))
    assert told == ["nothing was closed"]
    hop.openings.give_back_writes(1)
    hop.openings.after_closing(lambda: told.append("writer"))
    hop.openings.give_back_reads("__default", 1)
    hop.openings.after_closing(lambda: told.append("reader"))
    assert told[1:] == []
    *_, (first, first_answered), (last, last_answered) = (
        each for each in upstream.asked[asked:] if isinstance(each[0], CloseQueue)
    )
    assert [first, last] == [
        CloseQueue(handle_parameters=handle(5, URI, WRITE | ACK)),
        CloseQueue(handle_parameters=handle(5, URI, READ)),
    ]
    first_answered(status)
    assert told[1:] == ["writer"]
    last_answered(status)
    assert told[1:] == ["writer", "reader"]


def test_closing_waits_no_longer_than_for_the_upstream() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    told: list[str] = []
    hop.openings.give_back_writes(1)
    hop.openings.after_closing(lambda: told.append("closed"))
    assert told == []
    hop.openings.lost()
    assert told == ["closed"]
    upstream.answer()
    assert told == ["closed"]
    hop.openings.give_back_reads("__default", 1)
    hop.openings.after_closing(lambda: told.append("without an upstream"))
    assert told == ["closed", "without an upstream"]


TOO_MANY = Status(category=StatusCategory.UNKNOWN, code=-1, message="Client would exceed the limit of 1 consumer(s)")
READERS, WRITERS = (OpenQueue(handle_parameters=handle(5, URI, flags)) for flags in (READ, WRITE))


def refused() -> tuple[Hop, Upstream]:
    """A hop that opens its queue again, and whose upstream has refused the reader and not the writer."""
    hop, upstream = reach(UpstreamState.OPENING)
    hop.late.clear()
    upstream.answer(TOO_MANY)
    return hop, upstream


def test_writers_do_not_wait_for_readers_that_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    hop, upstream = refused()
    assert upstream.take() == [WRITERS]
    states = [hop.state]
    upstream.answer()
    assert [*states, hop.state] == [UpstreamState.OPENING, UpstreamState.OPEN]
    # The subscriptions are of an app that is not open.
    assert upstream.take() == []
    start = '[ rId = {} choice = [ openQueue = [ handleParameters = [ uri = "bmq://priority/q" qId = 5 subIdInfo = NULL'
    both = start.format(1) + " flags = 6 readCount = 1 writeCount = 1 adminCount = 0 ] ] ] ]"
    writer = start.format(2) + " flags = 4 readCount = 0 writeCount = 1 adminCount = 0 ] ] ] ]"
    assert f"Sending request to 'upstream' [request: {both}]" in caplog.messages
    assert f"Sending request to 'upstream' [request: {writer}]" in caplog.messages
    assert (
        f"queue reopen-request failed. Request: {both}, error response: [ rId = 1 choice = [ status = [ "
        'category = E_UNKNOWN code = -1 message = "Client would exceed the limit of 1 consumer(s)" ] ] ]. '
        "Attempt number was: 1. Attempting again after 1234 milliseconds."
    ) in caplog.messages


@pytest.mark.parametrize("attempts_max", [0, -1])
def test_readers_that_are_refused_are_asked_for_again_and_again_without_a_maximum(attempts_max: int) -> None:
    hop, upstream = refused()
    hop.openings._reopening._pace = ReopenPace(1234, attempts_max)
    upstream.answer()
    for _ in range(50):
        hop.wait(1234)
        assert upstream.take() == [READERS]
        upstream.answer(TOO_MANY)


def test_readers_that_are_refused_are_asked_for_again() -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.wait(1233)
    assert upstream.take() == []
    hop.wait(1)
    assert upstream.take() == [READERS]
    upstream.answer()
    assert hop.late == ["__default"]
    ((choice, _),) = upstream.asked
    assert isinstance(choice, ConfigureStream)
    assert choice.stream_parameters.subscriptions == WANTED
    upstream.asked.clear()
    hop.openings.give_back_reads("__default", 1)
    assert [type(each) for each in upstream.take()] == [ConfigureStream, CloseQueue]


def test_it_is_told_when_refused_readers_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.wait(1234)
    upstream.answer(TOO_MANY)
    hop.wait(100_000)
    assert upstream.take() == []
    assert "ALARM [QUEUE_REOPEN_FAILURE] error while reopening queue [[ rId = 3 " in caplog.text
    # The next upstream is asked.
    other = Upstream()
    hop.openings.found(other)
    assert other.take() == [OpenQueue(handle_parameters=handle(5, URI, READ | WRITE))]


def test_readers_that_leave_are_not_asked_for() -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.openings.give_back_reads("__default", 1)
    hop.wait(1234)
    assert upstream.take() == []


def test_readers_that_leave_while_they_are_asked_for_are_closed() -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.wait(1234)
    hop.openings.give_back_reads("__default", 1)
    assert upstream.take() == [READERS]
    upstream.answer()
    assert upstream.take() == [CloseQueue(handle_parameters=handle(5, URI, READ))]
    assert hop.late == []


def test_readers_that_are_asked_for_are_closed_at_an_upstream_that_is_left() -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.wait(1234)
    upstream.asked.clear()
    hop.openings.lost()
    assert upstream.take() == [
        CloseQueue(handle_parameters=handle(5, URI, WRITE | ACK)),
        CloseQueue(handle_parameters=handle(5, URI, READ), is_final=True),
    ]


def test_another_reader_gets_in_beside_one_that_is_refused() -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.open(READ)
    assert upstream.take() == [READERS]
    upstream.answer()
    hop.openings.configure("__default", (), lambda: None)
    assert [type(each) for each in upstream.take()] == [ConfigureStream]
    upstream.answer()
    hop.wait(1234)
    # The first one, and no more.
    assert upstream.take() == [READERS]
    upstream.answer()
    hop.openings.lost()
    assert CloseQueue(handle_parameters=handle(5, URI, READ, read_count=2)) in upstream.take()


def test_writers_that_are_refused_are_asked_for_again() -> None:
    hop, upstream = refused()
    upstream.answer(TOO_MANY)
    assert hop.state is UpstreamState.OPEN
    hop.wait(1234)
    assert upstream.take() == [READERS, WRITERS]
    upstream.answer()
    assert [type(each) for each in upstream.take()] == [ConfigureStream]


def test_a_late_answer_that_may_pass_is_no_attempt() -> None:
    hop, upstream = refused()
    upstream.answer()
    hop.wait(1234)
    upstream.answer(Status(category=StatusCategory.NOT_READY, code=0))
    hop.wait()
    assert upstream.take() == [READERS]
    upstream.answer()
    assert hop.late == ["__default"]


def test_opening_does_not_wait_for_the_answer_of_an_old_upstream() -> None:
    hop, upstream = reach(UpstreamState.OPEN)
    upstream.asked.clear()
    hop.open(READ)
    late = upstream.asked.pop()[1]
    hop.openings.lost()
    other = Upstream()
    hop.openings.found(other)
    other.answer()
    other.answer()
    assert hop.outcomes == [None, None, None]
    assert hop.opens.consumers["__default"].readers == 2
    late(Status(category=StatusCategory.TIMEOUT, code=0, message="late"))
    assert hop.outcomes == [None, None, None]
    assert hop.opens.consumers["__default"].readers == 2


@pytest.mark.parametrize("state", UpstreamState, ids=lambda each: each.name)
def test_a_withdrawn_open_is_not_asked_for(state: UpstreamState) -> None:
    hop, upstream = reach(state)
    upstream.answer()
    if state is UpstreamState.OPENING:
        hop.openings.lost()
    upstream.asked.clear()
    opening = hop.openings.open(handle(0, URI, READ), hop.outcomes.append)
    upstream.answer(Status(category=StatusCategory.NOT_READY, code=0, message="wait"))
    hop.openings.withdraw(opening)
    hop.wait()
    hop.openings.found(Upstream())
    assert isinstance(hop.outcomes.pop(), Refusal)
    assert hop.outcomes == [None, None]
    assert upstream.take() == [] or state is UpstreamState.OPEN
    hop.openings.give_back_reads("__default", 1)
    hop.openings.give_back_writes(1)
    assert hop.openings.is_unused


APP = handle(5, "bmq://fanout/q?id=foo", READ, sub_id_info=SubQueueIdInfo(sub_id=1, app_id="foo"))


def asked_for_again() -> tuple[Hop, Upstream]:
    """A hop whose upstream has refused a reader of an app, and is asked for it again."""
    hop, first, upstream = Hop(), Upstream(), Upstream()
    hop.openings.found(first)
    hop.openings.open(APP, hop.outcomes.append)
    first.answer()
    hop.openings.lost()
    hop.openings.found(upstream)
    upstream.answer(TOO_MANY)
    hop.wait(1234)
    assert upstream.take() == [OpenQueue(handle_parameters=replace(APP, uri=f"{URI}?id=foo"))]
    return hop, upstream


def test_an_app_keeps_its_number_while_it_is_asked_for_again() -> None:
    hop, upstream = asked_for_again()
    hop.openings.give_back_reads("foo", 1)
    hop.openings.open(APP, hop.outcomes.append)
    requests = upstream.take()
    upstream.answer()
    hop.openings.give_back_reads("foo", 1)
    requests += upstream.take()
    balance = 0
    for request in requests:
        assert isinstance(request, OpenQueue | CloseQueue)
        parameters = request.handle_parameters
        assert parameters.sub_id_info == APP.sub_id_info
        balance += parameters.read_count if isinstance(request, OpenQueue) else -parameters.read_count
    assert len(requests) == 4
    assert balance == 0
    assert hop.openings.is_unused


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_app_closed_while_it_is_asked_for_again_is_given_up(is_lost: bool) -> None:
    hop, upstream = asked_for_again()
    hop.openings.give_back_reads("foo", 1)
    unused = [hop.openings.is_unused]
    if is_lost:
        hop.openings.lost()
    else:
        upstream.answer()
    assert [*unused, hop.openings.is_unused] == [False, True]
    assert hop.given_up == ["foo"]


class BroadcastHop(Hop):
    def send_kept(self, sent: Callable[[], None]) -> None:
        self.openings.configure_all(sent)


def test_a_consumer_that_goes_on_changing_its_subscriptions_does_not_hold_up_the_queue() -> None:
    hop, first, upstream = BroadcastHop(), Upstream(), Upstream()
    hop.openings.found(first)
    hop.open(READ)
    first.answer()
    wanted = [(Subscription(s_id=number, expression=ExpressionInfo(text="")),) for number in range(1, 10)]
    hop.openings.configure("__default", wanted[0], lambda: None)
    hop.openings.lost()
    hop.openings.found(upstream)
    upstream.answer()
    states = [hop.state]
    for each in wanted[1:]:
        hop.openings.configure("__default", each, lambda: None)
        upstream.answer()
    assert [*states, hop.state] == [UpstreamState.OPENING, UpstreamState.OPEN]
    assert hop.opens.consumers["__default"].told == wanted[-1]


@pytest.mark.parametrize("code", [-1, ClusterError.LIMIT])
def test_refused_opening_is_repeated_at_the_configured_pace(code: int) -> None:
    hop, upstream = reach(UpstreamState.OPENING)
    refusal = Status(category=StatusCategory.REFUSED, code=code, message="maximum number of queues reached")
    asked: list[object] = []
    for _ in range(1000):
        asked += upstream.take()
        upstream.answer(refusal)
        hop.wait()
    assert hop.state is UpstreamState.OPEN
    both = OpenQueue(handle_parameters=handle(5, URI, READ | WRITE))
    assert asked == [both, WRITERS, READERS, WRITERS]
