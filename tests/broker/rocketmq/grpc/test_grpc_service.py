"""The calls of gRPC clients, carried out by a whole broker."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import pytest

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.flush_gate import late
from broker.rocketmq.grpc.brokers.loopback import Loopback
from broker.rocketmq.grpc.clients import GrpcClient
from broker.rocketmq.grpc.sending import consistent_hash
from broker.rocketmq.grpc.service import GrpcClients
from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import ClientType, Code, MessageType, Permission, TransactionResolution
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make, ms_of, time_of_ms
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.clients import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupConfig,
    GroupRetryPolicy,
)
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.grpc.grpc_service_rig import consumer, credential, end, endpoints, producer, resource
from tests.broker.rocketmq.grpc.served import Served, message
from tests.broker.rocketmq.proxy.clustered import Clustered
from tests.broker.rocketmq.rig import Rig


@pytest.fixture(params=[Served, Clustered], ids=["alone", "cluster"])
def served(request: pytest.FixtureRequest) -> Served:
    """The service before its own broker, and before that of a cluster."""
    made: Served = request.param()
    return made


@pytest.fixture
def alone() -> Served:
    """The service before its own broker, which has a connection of each client."""
    return Served()


def route(served: Served, topic: str) -> Message:
    return served.call("QueryRoute", make("QueryRouteRequest", topic=resource(topic), endpoints=endpoints()))


# -- routes


def test_a_route_has_every_queue_at_the_address_that_was_asked_about(served: Served) -> None:
    answer = route(served, "many")
    assert answer.status.code == Code.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2, 3]
    assert {queue.permission for queue in answer.message_queues} == {Permission.READ_WRITE}
    assert {queue.broker.name for queue in answer.message_queues} == {served.rig.options.name}
    assert all(queue.broker.endpoints == endpoints() for queue in answer.message_queues)
    assert list(answer.message_queues[0].accept_message_types) == [1, 2, 3, 4]
    assert list(route(served, "t").message_queues[0].accept_message_types) == [MessageType.NORMAL]


@pytest.mark.parametrize(
    ("config", "permissions"),
    [
        (TopicConfig("x", 3, 1), [2, 2, 4]),
        (TopicConfig("x", 1, 3), [3, 3, 4]),
        (TopicConfig("x", 2, 2, 4), [2, 2]),
        (TopicConfig("x", 2, 2, 2), [3, 3]),
        (TopicConfig("x", 2, 2, 0), [1, 1]),
    ],
)
def test_a_route_says_what_queues_are_for(served: Served, config: TopicConfig, permissions: list[int]) -> None:
    served.rig.topics.put(config, served.rig.wall_ms)
    assert [queue.permission for queue in route(served, "x").message_queues] == permissions


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("none", Code.TOPIC_NOT_FOUND),
        ("", Code.ILLEGAL_TOPIC),
        ("a b", Code.ILLEGAL_TOPIC),
        ("t" * 128, Code.ILLEGAL_TOPIC),
        ("SCHEDULE_TOPIC_XXXX", Code.ILLEGAL_TOPIC),
        ("rmq_sys_x", Code.ILLEGAL_TOPIC),
    ],
)
def test_topics_that_clients_cannot_use(served: Served, topic: str, code: Code) -> None:
    assert route(served, topic).status.code == code


def test_assignments_are_one_a_broker_or_one_a_queue_in_order(served: Served) -> None:
    request = make("QueryAssignmentRequest", topic=resource("many"), group=resource("g"), endpoints=endpoints())
    answer = served.call("QueryAssignment", request)
    assert [each.message_queue.id for each in answer.assignments] == [-1]
    served.rig.groups.put(GroupConfig("g", consume_message_orderly=True), served.rig.wall_ms)
    # A proxy uses what it knows of a group for a while, and then once more, while it is looked up again.
    served.pass_time(20_500)
    served.call("QueryAssignment", request)
    answer = served.call("QueryAssignment", request)
    assert [each.message_queue.id for each in answer.assignments] == [0, 1, 2, 3]


# -- messages


def test_a_message_is_stored_with_its_properties_and_received_as_it_was(served: Served) -> None:
    sent = message(body=b"text", tag="A", keys=["k1", "k2"], born_timestamp=time_of_ms(1_700_000_000_500))
    sent.user_properties["color"] = "blue"
    answer = served.send(sent)
    assert answer.status.code == Code.OK
    (entry,) = answer.entries
    assert (entry.status.code, entry.message_id, entry.transaction_id, entry.offset) == (Code.OK, "ID-1", "ID-1", 0)
    (record,) = served.rig.messages("t")
    assert b"UNIQ_KEY\x01ID-1" in record.properties
    assert record.born_ms == 1_700_000_000_500
    (received,) = served.receive()
    system = received.system_properties
    assert (received.body, received.topic.name, dict(received.user_properties)) == (b"text", "t", {"color": "blue"})
    assert (system.tag, list(system.keys), system.message_id) == ("A", ["k1", "k2"], "ID-1")
    assert system.body_digest.checksum == hashlib.md5(b"text").hexdigest().upper()
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
    assert ms_of(system.born_timestamp) == 1_700_000_000_500
    assert system.message_type == MessageType.NORMAL


def bad(**changes: Any) -> Message:
    made = message("many", **{name: value for name, value in changes.items() if name not in ("body", "user")})
    if "body" in changes:
        made.body = changes["body"]
    made.user_properties.update(changes.get("user", {}))
    return made


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (bad(body=b""), Code.MESSAGE_BODY_EMPTY),
        (bad(body=bytes((4 << 20) + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (bad(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        (bad(message_id="a\x02b"), Code.ILLEGAL_MESSAGE_ID),
        (bad(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (bad(tag="  "), Code.ILLEGAL_MESSAGE_TAG),
        (bad(tag="a\x01"), Code.ILLEGAL_MESSAGE_TAG),
        (bad(keys=["a\n"]), Code.ILLEGAL_MESSAGE_KEY),
        (bad(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (bad(message_group="\x7f"), Code.ILLEGAL_MESSAGE_GROUP),
        (bad(user={"TAGS": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (bad(user={"ORIGIN_GROUP": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (bad(user={"_SYS_MSG_PRIORITY_": "1"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (bad(user={"a": "\x01"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (bad(user={"a": "x" * 16_384}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (bad(user={str(number): "" for number in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (bad(delivery_timestamp=time_of_ms(1_700_086_400_001)), Code.ILLEGAL_DELIVERY_TIME),
        (message("t", message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("none"), Code.TOPIC_NOT_FOUND),
    ],
)
def test_messages_that_cannot_be_are_refused(served: Served, sent: Message, code: Code) -> None:
    answer = served.send(sent)
    assert answer.status.code == code
    assert not answer.entries
    assert sum(queue.end for queue in served.rig.store.queues.values()) == 0


def test_messages_of_a_group_go_to_one_queue_and_others_to_all(served: Served) -> None:
    for number in range(8):
        served.send(message("many", message_id=f"n{number}"))
    assert [len(served.rig.messages("many", queue)) for queue in range(4)] == [2, 2, 2, 2]
    for number in range(8):
        served.send(message("many", message_id=f"f{number}", message_group="same", message_type=2))
    assert sorted(len(served.rig.messages("many", queue)) for queue in range(4)) == [2, 2, 2, 10]


def test_several_messages_have_a_result_each(served: Served) -> None:
    answer = served.send(message(message_id="a"), message(message_id="b"))
    assert [entry.message_id for entry in answer.entries] == ["a", "b"]
    assert [entry.offset for entry in answer.entries] == [0, 1]
    assert answer.status.code == Code.OK
    assert served.send(message("t"), message("many")).status.code == Code.MESSAGE_CORRUPTED
    assert served.send().status.code == Code.MESSAGE_CORRUPTED


def test_the_hash_is_consistent() -> None:
    assert [consistent_hash(number, 1) for number in (0, 5, -7)] == [0, 0, 0]
    for number in (0, 1, -1, 97, 2**31 - 1, -(2**31)):
        places = [consistent_hash(number, buckets) for buckets in range(1, 40)]
        # With one bucket more, a number stays where it is or goes to the new one.
        assert all(new in (old, count) for count, (old, new) in enumerate(pairwise(places), 1))


class LateGate:
    """A disk that finishes nothing in time."""

    def take(self, holder: Loopback, data: list[Frame]) -> list[Frame]:
        return late(data)


def test_a_message_that_is_not_on_the_disk_in_time_is_told_as_that() -> None:
    served = Served(gate=LateGate())
    answer = served.send(message())
    assert answer.status.code == answer.entries[0].status.code == Code.MASTER_PERSISTENCE_TIMEOUT
    # It is stored, and what is no result of sending comes as it is.
    assert [each.body for each in served.receive()] == [b"body"]


def test_a_topic_that_was_changed_is_another_one() -> None:
    served = Served()
    assert served.send(message("many", message_type=MessageType.FIFO, message_group="g")).status.code == Code.OK
    served.rig.topics.put(TopicConfig("many", 4, 4), served.rig.wall_ms)
    answer = served.send(message("many", message_type=MessageType.FIFO, message_group="g"))
    assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_step_that_led_to_no_questions_needs_no_other_one() -> None:
    served = Served()
    request = make("SendMessageRequest", messages=[message()]).SerializeToString()
    served.client.call("SendMessage", request, x_mq_client_id="client")
    assert not served.service.end_step()
    served.client.exchange()
    assert served.client.ended


# -- receiving


def test_a_consumer_waits_for_messages_and_is_answered_when_one_comes(served: Served) -> None:
    stream = served.begin("ReceiveMessage", served.receive_request())
    assert served.answers("ReceiveMessage", stream) == []
    served.send(message())
    kinds = [each.WhichOneof("content") for each in served.answers("ReceiveMessage", stream)]
    assert kinds == ["status", "message", "delivery_timestamp"]
    assert served.client.status(stream) == "0"


def test_a_consumer_that_gets_nothing_is_told_so(served: Served) -> None:
    stream = served.begin("ReceiveMessage", served.receive_request())
    served.pass_time(6_000)
    answers = served.answers("ReceiveMessage", stream)
    assert [each.WhichOneof("content") for each in answers] == ["status", "delivery_timestamp"]
    assert answers[0].status.code == Code.MESSAGE_NOT_FOUND


def test_tags_choose_messages_and_those_of_the_same_hash_do_not_pass(served: Served) -> None:
    # "Aa" and "BB" have one hash.
    for number, tag in enumerate(("Aa", "BB", "C")):
        served.send(message(tag=tag, message_id=str(number)))
    assert [each.system_properties.tag for each in served.receive(expression="Aa || C")] == ["Aa", "C"]
    served.pass_time(20_000)
    # Of what was given out, that with the other tag is dealt with; the rest comes again.
    assert sorted(each.system_properties.tag for each in served.receive(expression="Aa || C")) == ["Aa", "C"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"invisible_duration": duration_of_ms(9_999)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": duration_of_ms(43_200_001)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"group": "a b"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": "CID_RMQ_SYS_x"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"topic": "none"}, Code.TOPIC_NOT_FOUND),
        ({"expression": "||"}, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_receiving_that_cannot_be_is_refused(served: Served, changes: dict[str, Any], code: Code) -> None:
    stream = served.begin("ReceiveMessage", served.receive_request(**changes))
    answers = served.answers("ReceiveMessage", stream)
    assert answers[0].status.code == code
    assert answers[-1].WhichOneof("content") == "delivery_timestamp"


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ({}, Code.BAD_REQUEST),
        ({"x_mq_client_version": "5.0.2"}, Code.BAD_REQUEST),
        ({"x_mq_client_version": "5.0.3"}, Code.ILLEGAL_POLLING_TIME),
        ({"x_mq_client_version": "5.1.2"}, Code.ILLEGAL_POLLING_TIME),
    ],
)
def test_a_call_with_too_little_time_is_refused(served: Served, version: dict[str, str], code: Code) -> None:
    stream = served.begin("ReceiveMessage", served.receive_request(), grpc_timeout="4S", **version)
    assert served.answers("ReceiveMessage", stream)[0].status.code == code


def waited_ms(served: Served, timeout: str) -> int:
    """Time after which a consumer without a waiting time of its own gets an empty answer."""
    request = served.receive_request()
    request.ClearField("long_polling_timeout")
    stream = served.begin("ReceiveMessage", request, grpc_timeout=timeout)
    since = served.ms
    while served.client.status(stream) is None:
        assert served.ms - since < 30_000
        served.pass_time(500)
    assert served.answers("ReceiveMessage", stream)[0].status.code == Code.MESSAGE_NOT_FOUND
    return served.ms - since


def test_a_consumer_that_does_not_say_how_long_it_waits_is_answered_in_its_time(served: Served) -> None:
    settings = consumer(kind=ClientType.SIMPLE_CONSUMER)
    settings.request_timeout.CopyFrom(duration_of_ms(4_000))
    served.tell(settings)
    # As official clients for Go have it: the time that they wait, and that of a request.
    assert waited_ms(served, "14S") == 12_000
    assert waited_ms(served, "6S") == 5_000
    assert waited_ms(served, "60S") == 20_000


def test_acknowledged_message_does_not_come_again(served: Served) -> None:
    served.send(message())
    (first,) = served.receive()
    answer = served.acknowledge(first.system_properties.receipt_handle)
    assert answer.status.code == answer.entries[0].status.code == Code.OK
    served.pass_time(30_000)
    assert served.receive() == []


def test_unacknowledged_message_comes_again_with_another_number(served: Served) -> None:
    served.send(message())
    (first,) = served.receive()
    served.pass_time(20_000)
    (second,) = served.receive()
    assert second.system_properties.delivery_attempt == 2
    assert second.topic.name == "t"
    assert second.system_properties.message_id == "ID-1"
    old = served.acknowledge(first.system_properties.receipt_handle)
    assert old.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    assert served.acknowledge(second.system_properties.receipt_handle).status.code == Code.OK
    served.pass_time(30_000)
    assert served.receive() == []


@pytest.mark.parametrize(
    "handle",
    ["", "x", "0 0 0 0 0 b", "1 2 3 4 0 other 0 0 1", "0 1 1000 0 0 broker-a 0 0 1", "0 " * 9, "0 1 2 9 7 b 0 0"],
)
def test_handles_that_are_none(served: Served, handle: str) -> None:
    assert served.acknowledge(handle).entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    request = make("ForwardMessageToDeadLetterQueueRequest", topic=resource("t"), group=resource("g"))
    request.receipt_handle = "0 1 1000 0 0 broker-a 0 0"
    answer = served.call("ForwardMessageToDeadLetterQueue", request)
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE


def test_results_that_differ_are_told_as_such(served: Served) -> None:
    served.send(message())
    (first,) = served.receive()
    answer = served.acknowledge(first.system_properties.receipt_handle, "x")
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]


def test_a_message_may_be_hidden_for_another_time(served: Served) -> None:
    served.send(message())
    (first,) = served.receive()
    request = make("ChangeInvisibleDurationRequest", topic=resource("t"), group=resource("g"))
    request.receipt_handle = first.system_properties.receipt_handle
    request.invisible_duration.CopyFrom(duration_of_ms(1_000))
    answer = served.call("ChangeInvisibleDuration", request)
    assert answer.status.code == Code.OK
    assert answer.receipt_handle != first.system_properties.receipt_handle
    served.pass_time(5_000)
    (second,) = served.receive()
    assert second.system_properties.delivery_attempt == 2


def test_a_dead_message_goes_to_the_dead_letters(served: Served) -> None:
    served.send(message())
    (first,) = served.receive()
    request = make("ForwardMessageToDeadLetterQueueRequest", topic=resource("t"), group=resource("g"))
    request.receipt_handle = first.system_properties.receipt_handle
    request.message_id = "ID-1"
    assert served.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    (dead,) = served.rig.messages("%DLQ%g")
    assert dead.body == b"body"
    served.pass_time(20_000)
    assert served.receive() == []


def test_a_message_that_failed_too_often_goes_to_the_dead_letters(served: Served) -> None:
    served.rig.groups.put(GroupConfig("g", retry_max_times=0), served.rig.wall_ms)
    served.send(message())
    assert len(served.receive()) == 1
    served.pass_time(20_000)
    assert served.receive() == []
    assert len(served.rig.messages("%DLQ%g")) == 1


def test_message_popped_for_a_cancelled_call_comes_again_soon(served: Served) -> None:
    stream = served.begin("ReceiveMessage", served.receive_request())
    served.client.http.reset_stream(stream)
    served.client.exchange()
    served.send(message())
    (again,) = served.receive()
    assert again.system_properties.delivery_attempt == 2


def test_groups_in_order_get_nothing_more_before_they_have_acknowledged(served: Served) -> None:
    served.rig.groups.put(GroupConfig("g", consume_message_orderly=True), served.rig.wall_ms)
    for number in range(2):
        served.send(message("many", str(number).encode(), message_id=str(number), message_group="x", message_type=2))
    assert [each.body for each in served.receive("many")] == [b"0", b"1"]
    served.send(message("many", b"2", message_id="2", message_group="x", message_type=2))
    assert served.receive("many") == []


# -- messages that clients work on for long


def test_a_message_stays_hidden_while_a_push_consumer_works_on_it(served: Served) -> None:
    served.tell(consumer())
    served.send(message())
    (held,) = served.receive(auto_renew=True)
    heartbeat = make("HeartbeatRequest", group=resource("g"), client_type=ClientType.PUSH_CONSUMER)
    for _ in range(4):
        served.pass_time(50_000)
        assert served.call("Heartbeat", heartbeat).status.code == Code.OK
    assert served.receive() == []
    # The client has the handle that it was given first.
    assert served.acknowledge(held.system_properties.receipt_handle).status.code == Code.OK
    served.pass_time(100_000)
    assert served.receive() == []


def test_a_message_that_takes_too_long_comes_again_after_the_delay_of_its_group(served: Served) -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([1, 1, 600_000]))
    served.rig.groups.put(GroupConfig("g", group_retry_policy=policy), served.rig.wall_ms)
    served.tell(consumer())
    served.send(message())
    assert len(served.receive(auto_renew=True)) == 1
    heartbeat = make("HeartbeatRequest", group=resource("g"), client_type=ClientType.PUSH_CONSUMER)

    def wait(seconds: int) -> None:
        for _ in range(seconds // 50):
            served.pass_time(50_000)
            served.call("Heartbeat", heartbeat)

    # Three hours, the last renewal before they are over, and nearly the delay.
    wait(3 * 3_600 + 60 + 450)
    assert served.receive() == []
    wait(200)
    (again,) = served.receive()
    assert again.system_properties.delivery_attempt == 2


def test_a_message_of_a_client_that_leaves_comes_again_soon(served: Served) -> None:
    served.tell(consumer())
    served.send(message())
    assert len(served.receive(auto_renew=True)) == 1
    served.call("NotifyClientTermination", make("NotifyClientTerminationRequest", group=resource("g")))
    (again,) = served.receive()
    assert again.system_properties.delivery_attempt == 2


def test_a_message_of_a_client_that_is_gone_is_not_renewed(served: Served) -> None:
    stream, _ = served.tell(consumer())
    served.send(message())
    assert len(served.receive(auto_renew=True)) == 1
    served.client.http.reset_stream(stream)
    served.client.exchange()
    served.pass_time(70_000)
    (again,) = served.receive()
    assert again.system_properties.delivery_attempt == 2


def test_messages_go_from_clients_of_one_protocol_to_those_of_the_other(served: Served) -> None:
    peer = served.rig.peer()
    peer.send(b"by remoting")
    (received,) = served.receive()
    assert received.body == b"by remoting"
    served.send(message(body=b"by gRPC", tag="A"))
    pulled = peer.pulled(offset=1, group="other")
    assert [bytes(record.body) for record in pulled] == [b"by gRPC"]


# -- transactions and delays


def test_a_transaction_is_committed_or_rolled_back(served: Served) -> None:
    for number, resolution in enumerate((TransactionResolution.COMMIT, TransactionResolution.ROLLBACK)):
        sent = served.send(message("many", str(number).encode(), message_id=f"tx{number}", message_type=4))
        assert sent.entries[0].transaction_id == f"tx{number}"
        assert end(served, resolution, f"tx{number}").status.code == Code.OK
    assert [each.body for each in served.receive("many")] == [b"0"]
    assert end(served, TransactionResolution.COMMIT, "tx1").status.code == Code.INVALID_TRANSACTION_ID
    assert end(served, TransactionResolution.COMMIT, " ").status.code == Code.INVALID_TRANSACTION_ID


def test_a_producer_is_asked_about_a_transaction_that_nobody_ends(served: Served) -> None:
    stream, _ = served.tell(producer("many"))
    served.send(message("many", message_type=4, born_timestamp=time_of_ms(served.rig.wall_ms)))
    served.pass_time(9_000)
    commands = served.answers("Telemetry", stream)
    orphans = [each for each in commands if each.WhichOneof("command") == "recover_orphaned_transaction_command"]
    orphan = orphans[0].recover_orphaned_transaction_command
    assert orphan.transaction_id == "ID-1"
    assert orphan.message.body == b"body"
    assert orphan.message.topic.name == "many"
    assert end(served, TransactionResolution.COMMIT).status.code == Code.OK
    assert [each.body for each in served.receive("many")] == [b"body"]


def test_a_late_message_can_be_recalled(served: Served) -> None:
    at = time_of_ms(served.rig.wall_ms + 10_000)
    sent = served.send(message("many", message_type=3, delivery_timestamp=at))
    handle = sent.entries[0].recall_handle
    assert handle
    served.pass_time(2_000)
    request = make("RecallMessageRequest", topic=resource("many"), recall_handle=handle)
    answer = served.call("RecallMessage", request)
    assert (answer.status.code, answer.message_id) == (Code.OK, "ID-1")
    served.pass_time(15_000)
    assert served.receive("many") == []
    request.topic.name = "t"
    assert served.call("RecallMessage", request).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


# -- clients


def test_settings_are_answered_with_those_that_hold(served: Served) -> None:
    _, (answer,) = served.tell(producer("t"))
    assert answer.status.code == Code.OK
    settings = answer.settings
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.publishing.validate_message_type
    assert settings.backoff_policy.max_attempts == 3
    assert ms_of(settings.backoff_policy.exponential_backoff.initial) == 10
    assert settings.HasField("metric")
    assert not settings.metric.on


def test_consumers_are_told_the_policy_of_their_group(served: Served) -> None:
    served.rig.groups.put(GroupConfig("g", consume_message_orderly=True, retry_max_times=3), served.rig.wall_ms)
    _, (answer,) = served.tell(consumer())
    subscription = answer.settings.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 32)
    assert ms_of(subscription.long_polling_timeout) == 20_000
    assert answer.settings.backoff_policy.max_attempts == 4
    steps = answer.settings.backoff_policy.customized_backoff.next
    assert (len(steps), ms_of(steps[0]), ms_of(steps[17])) == (18, 1_000, 7_200_000)


EXPONENTIAL = ExponentialRetryPolicy(5_000, 100_000, 3)
CUSTOMIZED = CustomizedRetryPolicy([1_000, 77_000, 1 << 62, -1])


def test_consumers_get_the_exponential_delays_of_their_group(served: Served) -> None:
    policy = GroupRetryPolicy("EXPONENTIAL", EXPONENTIAL, CUSTOMIZED)
    served.rig.groups.put(GroupConfig("g", group_retry_policy=policy), served.rig.wall_ms)
    _, (answer,) = served.tell(consumer())
    found = answer.settings.backoff_policy.exponential_backoff
    assert (ms_of(found.initial), ms_of(found.max), found.multiplier) == EXPONENTIAL


def test_consumers_get_the_customized_delays_of_their_group(served: Served) -> None:
    policy = GroupRetryPolicy("CUSTOMIZED", EXPONENTIAL, CUSTOMIZED)
    served.rig.groups.put(GroupConfig("g", group_retry_policy=policy), served.rig.wall_ms)
    _, (answer,) = served.tell(consumer())
    # Durations have a bound, which is far beyond what can be meant.
    delays_ms = [*map(ms_of, answer.settings.backoff_policy.customized_backoff.next)]
    assert delays_ms == [1_000, 77_000, 315_576_000_000_000, 0]


def test_a_client_that_tells_settings_is_in_its_group_until_it_leaves(alone: Served) -> None:
    alone.tell(consumer())
    peer = alone.rig.peer()

    def members() -> bytes:
        return bytes(peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").body)

    assert b'"client"' in members()
    answer = alone.call("NotifyClientTermination", make("NotifyClientTerminationRequest", group=resource("g")))
    assert answer.status.code == Code.OK
    assert members() == b""
    assert alone.call("Heartbeat", make("HeartbeatRequest")).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_heartbeats_need_settings(served: Served) -> None:
    heartbeat = make("HeartbeatRequest", group=resource("g"), client_type=ClientType.PUSH_CONSUMER)
    assert served.call("Heartbeat", heartbeat).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    served.tell(consumer())
    assert served.call("Heartbeat", heartbeat).status.code == Code.OK
    served.client_id = "other"
    assert served.call("Heartbeat", heartbeat).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_settings_that_say_nothing_end_the_stream(served: Served) -> None:
    stream, answers = served.tell(make("Settings", client_type=ClientType.PRODUCER))
    assert answers == []
    assert served.client.status(stream) == "3"


def test_a_client_has_an_id(served: Served) -> None:
    served.client_id = " "
    assert served.send(message()).status.code == Code.CLIENT_ID_REQUIRED
    stream = served.begin("ReceiveMessage", served.receive_request())
    assert served.answers("ReceiveMessage", stream)[0].status.code == Code.CLIENT_ID_REQUIRED


def test_a_silent_client_is_forgotten(served: Served) -> None:
    served.send(message())
    assert len(served.service._clients) == 1
    served.pass_time(121_000)
    assert not served.service._clients


def test_invalid_request_ends_its_call_only(served: Served) -> None:
    stream = served.client.call("SendMessage", b"\xff\xff", x_mq_client_id="client")
    assert served.client.status(stream) == "13"
    for method in ("PullMessage", "Nonsense"):
        assert served.client.status(served.client.call(method, b"", x_mq_client_id="client")) == "12"
    assert served.send(message()).status.code == Code.OK


# -- access


@pytest.fixture
def guarded() -> Served:
    rig = Rig()
    rig.access_options = AccessOptions(authentication=True, authorization=True)
    rig.stop()
    rig.topics.put(TopicConfig("t", 1, 1), rig.wall_ms)
    rig.access.create_user(UserInfo("super", "secret", "Super", "enable"))
    rig.access.create_user(UserInfo("weak", "secret", "Normal", "enable"))
    return Served(rig)


@pytest.mark.parametrize("is_upper", [False, True])
def test_signed_client_may_call(guarded: Served, is_upper: bool) -> None:
    guarded.headers = credential("super", "secret", is_upper)
    assert route(guarded, "t").status.code == Code.OK
    assert guarded.send(message()).status.code == Code.OK
    assert len(guarded.receive()) == 1


@pytest.mark.parametrize("headers", [{}, credential("super", "guess"), credential("nobody", "secret")])
def test_unsigned_client_may_not_call(guarded: Served, headers: dict[str, str]) -> None:
    guarded.headers = headers
    assert route(guarded, "t").status.code == Code.UNAUTHORIZED
    assert guarded.send(message()).status.code == Code.UNAUTHORIZED
    assert guarded.rig.messages("t") == []


def test_client_without_the_right_may_not_call(guarded: Served) -> None:
    guarded.headers = credential("weak", "secret")
    assert route(guarded, "t").status.code == Code.UNAUTHORIZED
    assert guarded.send(message()).status.code == Code.UNAUTHORIZED
    assert guarded.rig.messages("t") == []


def test_unsigned_client_leaves_no_state(guarded: Served) -> None:
    route(guarded, "t")
    assert len(guarded.service._clients) == 0
    guarded.headers = credential("super", "secret")
    route(guarded, "t")
    assert len(guarded.service._clients) == 1


# -- how many clients there may be


def client_of(address: str, client_id: str) -> GrpcClient:
    return GrpcClient(client_id, Host(address, 1), "JAVA")


def test_clients_are_counted_by_address_and_together() -> None:
    clients = GrpcClients(all_max=4, address_max=2)
    first = client_of("a", "1")
    for client in (first, client_of("a", "2"), client_of("b", "1")):
        clients.check_room(client.host.address)
        clients.add(client)
    with pytest.raises(CallRejected, match="too many clients of a"):
        clients.check_room("a")
    clients.check_room("b")
    clients.discard(first)
    clients.discard(first)
    clients.discard(client_of("a", "2"))
    assert (len(clients), clients.get("a", "1")) == (2, None)
    clients.check_room("a")
    clients.add(client_of("a", "3"))
    clients.add(client_of("c", "1"))
    with pytest.raises(CallRejected, match=r"too many clients$"):
        clients.check_room("d")


def test_one_address_does_not_keep_out_others(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.service._clients, "_address_max", 2)
    for client_id in ("1", "2"):
        served.client_id = client_id
        assert served.send(message()).status.code == Code.OK
    served.client_id = "3"
    assert served.send(message()).status.code == Code.TOO_MANY_REQUESTS
    served.client_id = "2"
    assert served.send(message()).status.code == Code.OK
    served.pass_time(121_000)
    served.client_id = "3"
    assert served.send(message()).status.code == Code.OK
