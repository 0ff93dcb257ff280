"""Requests of gRPC clients that are larger than they need be, or have numbers that cannot be."""

from __future__ import annotations

import gzip

import pytest

from broker.rocketmq.grpc.http2.call import Limits
from broker.rocketmq.grpc.http2.wire import frame_message
from formats.rocketmq.grpc.codes import ClientType, Code
from formats.rocketmq.grpc.messages import Message, decode, make, time_of_ms
from formats.rocketmq.remoting.codes import RequestCode
from tests.broker.rocketmq.grpc.grpc_service_rig import consumer, endpoints, producer, resource
from tests.broker.rocketmq.grpc.http2.peer import Client
from tests.broker.rocketmq.grpc.served import Served, message
from tests.broker.rocketmq.proxy.clustered import Clustered


@pytest.fixture(params=[Served, Clustered], ids=["alone", "cluster"])
def served(request: pytest.FixtureRequest) -> Served:
    """The service before its own broker, and before that of a cluster."""
    made: Served = request.param()
    return made


# -- sizes and counts


def test_entries_of_a_request_are_counted(served: Served) -> None:
    served.send(message())
    (held,) = served.receive()
    handle = held.system_properties.receipt_handle
    answer = served.acknowledge(handle, *[""] * 1_024)
    assert (answer.status.code, len(answer.entries)) == (Code.BAD_REQUEST, 0)
    assert len(served.acknowledge(*[""] * 1_023, handle).entries) == 1_024
    served.pass_time(30_000)
    assert served.receive() == []


def test_messages_of_a_request_are_counted(served: Served) -> None:
    assert served.send(*[message(body=b"b")] * 1_025).status.code == Code.BAD_REQUEST
    assert served.rig.messages("t") == []
    assert len(served.send(*[message(body=b"b")] * 1_024).entries) == 1_024


def test_keys_of_a_message_are_counted(served: Served) -> None:
    answer = served.send(message(keys=[""] * 16_385))
    assert (answer.status.code, answer.status.message[:13]) == (Code.MESSAGE_PROPERTIES_TOO_LARGE, "too many keys")
    assert served.send(message(keys=["k"] * 5_000)).status.code == Code.OK


def test_topics_and_subscriptions_are_counted(served: Served) -> None:
    settings = consumer()
    for number in range(1_023):
        settings.subscription.subscriptions.add(topic=resource(f"t{number}"))
    assert served.tell(settings)[1][0].status.code == Code.OK
    settings.subscription.subscriptions.add(topic=resource("one-more"))
    assert served.client.status(served.tell(settings)[0]) == "3"
    assert served.client.status(served.tell(producer(*[f"t{number}" for number in range(1_025)]))[0]) == "3"


def test_settings_are_small(served: Served) -> None:
    settings = consumer(kind=ClientType.SIMPLE_CONSUMER)
    settings.user_agent.hostname = "x" * (64 << 10)
    assert served.client.status(served.tell(settings)[0]) == "3"
    assert all(client.settings is None for client in served.service._clients)
    settings.user_agent.hostname = "x" * (60 << 10)
    assert served.tell(settings)[1][0].status.code == Code.OK


@pytest.mark.parametrize("method", ["QueryRoute", "QueryAssignment"])
def test_repeated_part_of_an_answer_for_each_queue_is_small(served: Served, method: str) -> None:
    def ask(way: Message, namespace: str = "") -> Message:
        topic = make("Resource", name="many", resource_namespace=namespace)
        groups = {"group": resource("g")} if method == "QueryAssignment" else {}
        return served.call(method, make(f"{method}Request", topic=topic, endpoints=way, **groups))

    long = endpoints()
    long.addresses.add(host="h" * 4_096)
    assert ask(long).status.code == Code.BAD_REQUEST
    assert ask(endpoints(), "n" * 4_096).status.code == Code.BAD_REQUEST
    assert ask(endpoints(), "n").status.code == Code.OK


def test_attempt_ids_are_short(served: Served) -> None:
    stream = served.begin("ReceiveMessage", served.receive_request(attempt_id="a" * 256))
    assert served.answers("ReceiveMessage", stream)[0].status.code == Code.BAD_REQUEST
    served.send(message())
    assert len(served.receive(attempt_id="a" * 255)) == 1


def test_a_small_message_becomes_no_large_one_where_there_is_no_body(served: Served) -> None:
    for method, status in (("AckMessage", "8"), ("Heartbeat", "8"), ("SendMessage", "0")):
        stream = served.client.open(method, x_mq_client_id="client", grpc_encoding="gzip")
        packed = gzip.compress(b"\x72\x80\x80\x80\x01" + bytes(2 << 20))
        served.client.http.send_data(stream, b"\1" + len(packed).to_bytes(4) + packed, end_stream=True)
        served.client.exchange()
        assert served.client.status(stream) == status
        if status == "0":
            (answer,) = served.client.messages(stream)
            assert decode("SendMessageResponse", answer).status.code == Code.MESSAGE_CORRUPTED


@pytest.mark.parametrize(
    ("method", "field"), [("SendMessage", b"\x0a\0"), ("AckMessage", b"\x1a\0"), ("Heartbeat", b"\x7b\x7c\x7a\0")]
)
def test_fields_of_a_request_are_counted_before_they_are_read(
    served: Served, monkeypatch: pytest.MonkeyPatch, method: str, field: bytes
) -> None:
    read: list[str] = []

    def note(name: str, data: bytes) -> Message:
        read.append(name)
        return decode(name, data)

    monkeypatch.setattr("broker.rocketmq.grpc.service.decode", note)
    stream = served.client.call(method, field * 1_101, x_mq_client_id="client")
    (answer,) = served.answers(method, stream)
    assert (answer.status.code, read) == (Code.BAD_REQUEST, [])
    served.client.call(method, field * 300, x_mq_client_id="client")
    assert read == [f"{method}Request"]


def test_messages_that_wait_for_the_end_of_their_calls_have_a_bound_together(served: Served) -> None:
    client = Client(served.service, Limits(unread_bytes_max=10_000))
    request = make("SendMessageRequest", messages=[message(body=bytes(6_000))]).SerializeToString()

    def begin() -> int:
        stream = client.open("SendMessage", x_mq_client_id="client")
        client.send(stream, request)
        client.exchange()
        return stream

    def status(stream: int) -> str | None:
        served.step()
        client.exchange()
        return client.status(stream)

    first = begin()
    assert status(first) is None
    assert status(begin()) == "8"
    client.http.end_stream(first)
    client.exchange()
    assert status(first) == "0"
    second = begin()
    assert status(second) is None
    client.http.reset_stream(second)
    client.exchange()
    assert status(begin()) is None
    # A message that is complete at once does not wait.
    third = client.open("SendMessage", x_mq_client_id="client")
    client.http.send_data(third, frame_message(request), end_stream=True)
    client.exchange()
    assert status(third) == "0"


# -- numbers


@pytest.mark.parametrize("seconds", [(1 << 63) - 1, -(1 << 63), 253_402_300_800])
def test_a_message_that_was_made_at_no_time_was_made_now(served: Served, seconds: int) -> None:
    born = make("Timestamp", seconds=seconds)
    assert served.send(message(born_timestamp=born)).status.code == Code.OK
    (record,) = served.rig.messages("t")
    assert record.born_ms == served.rig.wall_ms
    assert b"BORN_TIMESTAMP" not in record.properties


@pytest.mark.parametrize("seconds", [(1 << 63) - 1, -(1 << 63)])
def test_no_message_is_delivered_at_no_time(served: Served, seconds: int) -> None:
    answer = served.send(message("many", message_type=3, delivery_timestamp=make("Timestamp", seconds=seconds)))
    assert answer.status.code == Code.ILLEGAL_DELIVERY_TIME


def test_a_message_may_be_older_than_the_epoch(served: Served) -> None:
    assert served.send(message(born_timestamp=time_of_ms(-5_000))).status.code == Code.OK
    assert served.rig.messages("t")[0].born_ms == -5_000


def test_handles_name_queues_that_can_be(served: Served) -> None:
    name = served.rig.options.name
    handle = f"0 {served.rig.wall_ms} 60000 0 0 {name} 99999999999 5 10"
    assert served.acknowledge(handle).entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    request = make("ChangeInvisibleDurationRequest", topic=resource("t"), group=resource("g"), receipt_handle=handle)
    assert served.call("ChangeInvisibleDuration", request).status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_kind_of_client_that_is_not_known_is_told_so(served: Served) -> None:
    settings = make("Settings", client_type=99)
    settings.publishing.topics.append(resource("t"))
    served.tell(settings)
    answer = served.call("Heartbeat", make("HeartbeatRequest"))
    assert (answer.status.code, answer.status.message) == (Code.UNRECOGNIZED_CLIENT_TYPE, "UNRECOGNIZED")
    peer = served.rig.peer()
    assert peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").body == b""
