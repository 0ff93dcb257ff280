"""Opening, configuring and closing queues: what is granted, and the status of what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ConfigureQueueStream,
    ConfigureQueueStreamResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    OpenQueueResponse,
    QueueStreamParameters,
    Status,
    StatusCategory,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from tests.broker.bmq.rig import ACK, APPS, DOMAINS, READ, WRITE, Client, Rig, guid, handle, start
from tests.broker.fakes import MemoryDirectory

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
UNKNOWN, REFUSED, INVALID = StatusCategory.UNKNOWN, StatusCategory.REFUSED, StatusCategory.INVALID_ARGUMENT

CONSUMER = ConsumerInfo(
    max_unconfirmed_messages=1, max_unconfirmed_bytes=1, consumer_priority=0, consumer_priority_count=1
)


@pytest.fixture
def rig() -> Rig:
    return start()


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.connect()


# -- open


@pytest.mark.parametrize(("domain", "flags"), [("priority", 2), ("fanout", 2 | 8), ("broadcast", 1 | 2 | 4)])
def test_the_answer_says_how_the_queue_routes(client: Client, domain: str, flags: int) -> None:
    answer = client.open(1, f"bmq://{domain}/q", WRITE | ACK)
    assert answer.routing_configuration.flags == flags
    assert answer.deduplication_time_ms == 300_000
    assert answer.original_request.handle_parameters == handle(1, f"bmq://{domain}/q", WRITE | ACK)


REFUSALS: dict[str, tuple[tuple[str, int, dict[str, Any]], Status]] = {
    "neither count": (
        (QUEUE, 0, {}),
        Status(category=INVALID, code=0, message="At least one of ([read|write]) Count must be >0"),
    ),
    "negative counts": (
        (QUEUE, READ, {"read_count": -1}),
        Status(category=INVALID, code=0, message="At least one of ([read|write]) Count must be >0"),
    ),
    "an admin": (
        (QUEUE, READ, {"admin_count": 1}),
        Status(category=INVALID, code=0, message="adminCount must be 0"),
    ),
    "read flag, no reader": (
        (QUEUE, READ | WRITE, {"read_count": 0}),
        Status(category=INVALID, code=0, message="Read flag and readCount must both be set accordingly"),
    ),
    "reader, no read flag": (
        (QUEUE, WRITE, {"read_count": 1}),
        Status(category=INVALID, code=0, message="Read flag and readCount must both be set accordingly"),
    ),
    "write flag, no writer": (
        (QUEUE, READ | WRITE, {"write_count": 0}),
        Status(category=INVALID, code=0, message="Write flag and writeCount must both be set accordingly"),
    ),
    "writer, no write flag": (
        (QUEUE, READ, {"write_count": 1}),
        Status(category=INVALID, code=0, message="Write flag and writeCount must both be set accordingly"),
    ),
    "a writer's app id": (
        (f"{FANOUT}?id=foo", WRITE, {"sub_id_info": SubQueueIdInfo(sub_id=1, app_id="foo")}),
        Status(
            category=INVALID,
            code=0,
            message="AppId should not be specified in the URI if queue is opened in write mode",
        ),
    ),
    "a fanout reader without app id": (
        (FANOUT, READ, {}),
        Status(category=UNKNOWN, code=-1, message="Reader of a fanout queue requires an appId to be specified."),
    ),
    "an app id without fanout": (
        (f"{QUEUE}?id=foo", READ, {"sub_id_info": SubQueueIdInfo(sub_id=1, app_id="foo")}),
        Status(category=UNKNOWN, code=-1, message="AppId should not be specified when opening a non-fanout queue"),
    ),
    "no scheme": (
        ("priority/q", WRITE, {}),
        Status(category=REFUSED, code=0, message='Invalid scheme: uri must start with "bmq://"'),
    ),
    "no queue": (("bmq://priority/", WRITE, {}), Status(category=REFUSED, code=0, message="Missing queue")),
    "no domain": (("bmq:///q", WRITE, {}), Status(category=REFUSED, code=0, message="Missing domain")),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_invalid_open_is_refused_in_the_references_words(rig: Rig, client: Client, name: str) -> None:
    (uri, flags, changed), status = REFUSALS[name]
    assert client.try_open(1, uri, flags, **changed) == status
    assert not client.session.handles
    assert not client.session.finished
    client.open(1, QUEUE, WRITE)


@pytest.mark.parametrize("queue_id", [0xFFFF_FFF5, 0xFFFF_FFFF])
def test_reserved_queue_ids_are_refused(client: Client, queue_id: int) -> None:
    status = client.try_open(queue_id, QUEUE, READ)
    assert status == Status(category=INVALID, code=0, message="qId must not be set from the reserved queue ids range")


def test_an_unknown_domain_is_refused(rig: Rig, client: Client) -> None:
    status = client.try_open(1, "bmq://nowhere/q", READ)
    assert isinstance(status, Status)
    assert (status.category, status.code) == (UNKNOWN, -1)
    assert "nowhere" in status.message
    assert not rig.node.queues


def test_a_domain_whose_definition_is_faulty_is_refused(rig: Rig, client: Client) -> None:
    def resolve(name: str) -> DomainConfig | None:
        raise ValueError(f"domains/{name}.json: $.mode: missing")

    rig.node.resolve_domain = resolve
    status = client.try_open(1, "bmq://faulty/q", READ)
    assert status == Status(category=UNKNOWN, code=-2, message="domains/faulty.json: $.mode: missing")


def test_a_queue_id_stands_for_one_queue(client: Client) -> None:
    client.open(1, QUEUE, WRITE)
    status = client.try_open(1, "bmq://priority/other", WRITE)
    assert status == Status(category=INVALID, code=-1, message="Queue URI mismatch for same queueId.")
    assert client.post(1, guid(1), b"still the first") is AckStatus.SUCCESS


def test_a_queue_id_can_be_used_again_after_its_close(client: Client) -> None:
    client.open(1, QUEUE, WRITE)
    client.close(1, QUEUE, WRITE)
    client.open(1, "bmq://priority/other", READ)
    assert client.session.handles[1].queue.uri == "bmq://priority/other"


def test_the_same_queue_can_be_opened_under_two_ids(client: Client) -> None:
    client.open(1, QUEUE, WRITE)
    client.read(2, QUEUE)
    client.put(1, guid(1), b"payload")
    assert client.payloads() == [b"payload"]


def test_queues_of_a_tier_are_their_own() -> None:
    rig = start(domains={**DOMAINS, "priority.~beta": DomainConfig("priority.~beta", Mode.PRIORITY)})
    client = rig.connect()
    client.open(1, "bmq://priority.~beta/q", WRITE)
    client.open(2, QUEUE, WRITE)
    assert set(rig.node.queues) == {"bmq://priority.~beta/q", QUEUE}


def test_a_redirected_domain_is_the_one_it_leads_to() -> None:
    rig = start(domains={**DOMAINS, "old": DOMAINS["priority"], "older.~beta": DOMAINS["priority"]})
    client = rig.connect()
    for number, uri in enumerate(("bmq://old/q", "bmq://older.~beta/q", QUEUE)):
        answer = client.open(number, uri, WRITE)
        assert answer.original_request.handle_parameters.uri == uri
        client.open(number, uri, WRITE)
    assert set(rig.node.queues) == {QUEUE}
    client.read(9, "bmq://old/q")
    assert client.post(0, guid(1), b"payload") is AckStatus.SUCCESS
    assert client.payloads() == [b"payload"]


def test_a_queue_cannot_be_made_on_a_full_disk() -> None:
    rig = start(MemoryDirectory())
    client = rig.connect()
    rig.directory.free = 0
    status = client.try_open(1, QUEUE, WRITE)
    assert isinstance(status, Status)
    assert status.category is StatusCategory.NOT_READY
    assert not rig.node.queues
    rig.directory.free = 1 << 20
    client.open(1, QUEUE, WRITE)
    assert client.post(1, guid(1), b"payload") is AckStatus.SUCCESS
    assert not rig.faults()


def test_a_queue_of_a_partition_that_is_not_served_is_refused() -> None:
    """The node ran with two partitions once; now its configuration has one."""
    wide = start(num_partitions=2)
    client = wide.connect()
    client.open(1, "bmq://priority/in-0", WRITE)
    client.open(2, "bmq://priority/in-1", WRITE)
    assert [partition.state().partition_id for partition in wide.node.partitions.values()] == [0, 1]
    narrow = start(wide.directory.after_crash(), wall_s=wide.now.wall_s)
    client = narrow.connect()
    client.open(1, "bmq://priority/in-0", WRITE)
    status = client.try_open(2, "bmq://priority/in-1", WRITE)
    assert isinstance(status, Status)
    assert status.category is StatusCategory.NOT_READY
    assert "partition 1" in status.message


# -- configure


def test_a_queue_that_is_not_open_cannot_be_configured(client: Client) -> None:
    request = ConfigureStream(q_id=1, stream_parameters=StreamParameters())
    assert client.ask(request) == Status(category=UNKNOWN, code=0, message="No queue with specified Id")


def test_an_app_that_is_not_open_cannot_be_configured(client: Client) -> None:
    client.open(1, FANOUT, READ, "foo", 1)
    request = ConfigureStream(q_id=1, stream_parameters=StreamParameters(app_id="bar"))
    assert client.ask(request) == Status(category=UNKNOWN, code=0, message="No queue with specified appId")


def test_a_producer_cannot_consume(client: Client) -> None:
    client.open(1, QUEUE, WRITE)
    one = Subscription(s_id=1, expression=Expression(text=""), consumers=(CONSUMER,))
    request = ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=(one,)))
    assert client.ask(request) == Status(category=UNKNOWN, code=0, message="No queue with specified appId")
    client.configure(1, consume=False)


def test_an_expression_that_does_not_compile_matches_everything(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The reference does the same: clients check their expressions themselves."""
    client.open(1, QUEUE, READ | WRITE)
    expression = Expression(version=ExpressionVersion.VERSION_1, text="x >")
    one = Subscription(s_id=1, expression=expression, consumers=(CONSUMER,))
    request = ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=(one,)))
    assert client.ask(request) == ConfigureStreamResponse(request=request)
    assert "#BMQ_SUBSCRIPTION_FAILURE for queue" in caplog.text
    assert 'expression: "x >", rc: -100, reason: "syntax error"' in caplog.text
    client.put(1, guid(1), b"payload")
    assert [push.payload for push in client.pushes()] == [b"payload"]


@pytest.mark.parametrize(("priority", "count"), [(0, 0), (0, -1), (-(1 << 31), 1)])
def test_priorities_that_make_no_sense_are_refused(client: Client, priority: int, count: int) -> None:
    client.open(1, QUEUE, READ)
    consumer = ConsumerInfo(
        max_unconfirmed_messages=1, max_unconfirmed_bytes=1, consumer_priority=priority, consumer_priority_count=count
    )
    one = Subscription(s_id=1, expression=Expression(text=""), consumers=(consumer,))
    request = ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=(one,)))
    status = client.ask(request)
    assert isinstance(status, Status)
    assert status.message == "Attempting to configure stream with invalid priority."


@pytest.mark.parametrize(("messages", "size"), [(-1, 1 << 20), (5, -1), (-1, -1), (-(1 << 63), -(1 << 63))])
def test_a_limit_below_zero_leaves_one_message_in_flight(client: Client, messages: int, size: int) -> None:
    """The reference takes such limits, and keeps the connection."""
    client.open(1, QUEUE, READ | WRITE)
    client.configure(1, messages_max=messages, bytes_max=size)
    for number in (1, 2, 3):
        client.put(1, guid(number), b"payload %d" % number)
    for number in (1, 2, 3):
        assert client.payloads() == [b"payload %d" % number]
        client.confirm(1, guid(number))
    assert client.payloads() == []
    assert not client.session.finished


@pytest.mark.parametrize(("uri", "app", "sub_id"), [(QUEUE, "", 0), (FANOUT, "bar", 7)])
def test_the_older_form_of_configure_is_understood(client: Client, uri: str, app: str, sub_id: int) -> None:
    client.open(1, uri, WRITE)
    client.open(2, uri, READ, app, sub_id)
    request = ConfigureQueueStream(
        q_id=2,
        stream_parameters=QueueStreamParameters(
            sub_id_info=SubQueueIdInfo(sub_id=sub_id, app_id=app) if app else None,
            max_unconfirmed_messages=1,
            max_unconfirmed_bytes=1000,
            consumer_priority=0,
            consumer_priority_count=1,
        ),
    )
    assert client.ask(request) == ConfigureQueueStreamResponse(request=request)
    client.put(1, guid(1), b"first")
    client.put(1, guid(2), b"second")
    (push,) = client.pushes()
    assert (push.payload, push.queue_id, push.subscription_id) == (b"first", 2, sub_id)
    client.confirm(2, guid(1), sub_id=sub_id)
    assert client.payloads() == [b"second"]


def test_the_answer_to_configure_comes_before_the_first_push(client: Client) -> None:
    client.open(1, QUEUE, READ | WRITE)
    client.put(1, guid(1), b"payload")
    client.configure(1)
    client.received.clear()
    kinds = [type(item).__name__ for item in client.inbox]
    assert kinds == ["Ack", "Pushed"]


# -- close


def test_a_queue_that_is_not_open_cannot_be_closed(client: Client) -> None:
    request = CloseQueue(handle_parameters=handle(1, QUEUE, WRITE), is_final=True)
    assert client.ask(request) == Status(category=UNKNOWN, code=0, message="No queue with specified Id")


def test_a_close_must_say_of_what(client: Client) -> None:
    client.open(1, QUEUE, WRITE)
    request = CloseQueue(handle_parameters=handle(1, QUEUE, 0), is_final=False)
    message = "At least one of [read|write|admin]Count must be > 0"
    assert client.ask(request) == Status(category=INVALID, code=0, message=message)
    assert client.post(1, guid(1), b"still open") is AckStatus.SUCCESS


def test_a_sub_stream_that_is_not_open_cannot_be_closed(client: Client) -> None:
    client.open(1, FANOUT, READ, "foo", 1)
    parameters = handle(1, FANOUT, READ, sub_id_info=SubQueueIdInfo(sub_id=2, app_id="bar"))
    status = client.ask(CloseQueue(handle_parameters=parameters))
    assert status == Status(category=UNKNOWN, code=0, message="No subStream of the queue with specified subId")


def test_apps_of_one_queue_are_closed_one_by_one(client: Client) -> None:
    for sub_id, app in enumerate(APPS, 1):
        client.read(1, FANOUT, app, sub_id)
    client.close(1, f"{FANOUT}?id=foo", READ, final=False, sub_id=1, app="foo")
    client.open(1, FANOUT, WRITE)
    client.put(1, guid(1), b"payload")
    assert sorted(push.subscription_id for push in client.pushes()) == [2, 3]
    client.close(1, FANOUT, WRITE, final=False)
    client.close(1, f"{FANOUT}?id=bar", READ, final=False, sub_id=2, app="bar")
    assert 1 in client.session.handles
    client.close(1, f"{FANOUT}?id=baz", READ, final=True, sub_id=3, app="baz")
    assert 1 not in client.session.handles


def test_reading_and_writing_are_closed_apart(client: Client) -> None:
    client.open(1, QUEUE, READ | WRITE)
    client.configure(1)
    client.close(1, QUEUE, WRITE, final=False)
    assert client.post(1, guid(1), b"payload") is AckStatus.UNKNOWN
    assert client.session.handles[1].streams
    client.close(1, QUEUE, READ, final=False)
    assert not client.session.handles


def test_nothing_is_pushed_after_a_close(client: Client, rig: Rig) -> None:
    client.read(1, QUEUE)
    client.close(1, QUEUE, READ)
    producer = rig.connect()
    producer.open(1, QUEUE, WRITE)
    producer.put(1, guid(1), b"payload")
    assert client.pushes() == []


def test_a_closed_queue_keeps_its_messages(rig: Rig) -> None:
    producer = rig.connect()
    producer.open(1, QUEUE, WRITE)
    producer.put(1, guid(1), b"payload")
    producer.disconnect()
    consumer = rig.connect()
    consumer.read(1, QUEUE)
    assert consumer.payloads() == [b"payload"]
    assert isinstance(consumer.try_open(2, QUEUE, READ), OpenQueueResponse)
    assert consumer.ask(CloseQueue(handle_parameters=handle(2, QUEUE, READ), is_final=True)) == CloseQueueResponse()
