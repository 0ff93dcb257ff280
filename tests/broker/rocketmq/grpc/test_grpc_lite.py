"""Lite topics over gRPC: before the broker of the process, and before one of a cluster."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from formats.rocketmq.grpc.codes import ClientType, Code, LiteSubscriptionAction
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make
from formats.rocketmq.lite import queue_name
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from tests.broker.rocketmq.grpc.served import Served, message
from tests.broker.rocketmq.proxy.clustered import Clustered

PARENT = "lite-parent"
ADD, REMOVE, ALL, NONE = (
    LiteSubscriptionAction.PARTIAL_ADD,
    LiteSubscriptionAction.PARTIAL_REMOVE,
    LiteSubscriptionAction.COMPLETE_ADD,
    LiteSubscriptionAction.COMPLETE_REMOVE,
)


@pytest.fixture(params=[Served, Clustered], ids=["alone", "cluster"])
def served(request: pytest.FixtureRequest) -> Served:
    made: Served = request.param()
    made.rig.topics.put(TopicConfig(PARENT, 4, 4, attributes={"message.type": "LITE"}), made.rig.wall_ms)
    bound = {"lite.bind.topic": PARENT}
    for name, own in (("lite", {}), ("one", {"lite.sub.model": "Exclusive"}), ("few", {"lite.sub.client.quota": "1"})):
        config = GroupConfig(name, consume_message_orderly=True, attributes={**bound, **own})
        made.rig.groups.put(config, made.rig.wall_ms)
    return made


def settings(group: str = "lite", kind: ClientType = ClientType.LITE_PUSH_CONSUMER, topic: str = PARENT) -> Message:
    made = make("Settings", client_type=kind)
    made.subscription.group.name = group
    made.subscription.subscriptions.add().topic.name = topic
    return made


def sync(served: Served, action: int, *names: str, group: str = "lite", topic: str = PARENT) -> Message:
    request = make("SyncLiteSubscriptionRequest", action=action, lite_topic_set=names)
    request.topic.name, request.group.name = topic, group
    return served.call("SyncLiteSubscription", request).status


def send(served: Served, body: str, lite_topic: str) -> Message:
    return served.send(message(PARENT, body.encode(), lite_topic=lite_topic, message_type=5)).status


def bodies(found: list[Message]) -> list[str]:
    return [each.body.decode() for each in found]


def acknowledge(served: Served, *found: Message, group: str = "lite") -> Message:
    request = make("AckMessageRequest")
    request.group.name, request.topic.name = group, PARENT
    for each in found:
        system = each.system_properties
        request.entries.add(
            message_id=system.message_id, receipt_handle=system.receipt_handle, lite_topic=system.lite_topic
        )
    return served.call("AckMessage", request).status


def test_lite_topics_are_consumed_in_order(served: Served) -> None:
    _, (answer,) = served.tell(settings())
    assert answer.status.code == Code.OK
    assert answer.settings.subscription.lite_subscription_quota == 2_000
    assert answer.settings.subscription.max_lite_topic_size == 64
    assert sync(served, ADD, "a").code == Code.OK
    for number in range(3):
        assert send(served, f"a{number}", "a").code == Code.OK
        assert send(served, f"b{number}", "b").code == Code.OK
    found = served.receive(PARENT, "lite")
    assert bodies(found) == ["a0", "a1", "a2"]
    assert [each.system_properties.lite_topic for each in found] == ["a"] * 3
    assert [each.system_properties.queue_offset for each in found] == [0, 1, 2]
    assert {each.system_properties.message_type for each in found} == {5}
    assert acknowledge(served, *found).code == Code.OK
    send(served, "a3", "a")
    assert sync(served, ADD, "b").code == Code.OK
    assert bodies(served.receive(PARENT, "lite")) == ["a3", "b0", "b1", "b2"]
    assert sync(served, REMOVE, "a").code == Code.OK
    assert sync(served, NONE).code == Code.OK


def test_message_comes_again_at_the_time_that_its_consumer_says(served: Served) -> None:
    served.tell(settings())
    sync(served, ADD, "a")
    send(served, "x", "a")
    (found,) = served.receive(PARENT, "lite")
    request = make("ChangeInvisibleDurationRequest", receipt_handle=found.system_properties.receipt_handle)
    request.group.name, request.topic.name, request.lite_topic = "lite", PARENT, "a"
    request.invisible_duration.CopyFrom(duration_of_ms(3_000))
    answer = served.call("ChangeInvisibleDuration", request)
    assert answer.status.code == Code.OK
    served.pass_time(1_000)
    (again,) = served.receive(PARENT, "lite")
    assert again.system_properties.delivery_attempt == 2
    assert acknowledge(served, again).code == Code.OK


def test_dead_letter_is_acknowledged_in_its_lite_topic(served: Served) -> None:
    served.tell(settings())
    sync(served, ADD, "a")
    send(served, "x", "a")
    send(served, "y", "a")
    found = served.receive(PARENT, "lite")
    request = make("ForwardMessageToDeadLetterQueueRequest", message_id="ID-1")
    request.receipt_handle = found[0].system_properties.receipt_handle
    request.group.name, request.topic.name, request.lite_topic = "lite", PARENT, "a"
    assert served.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    served.step()
    assert served.rig.offsets.get(queue_name(PARENT, "a"), "lite", 0) == 1
    (dead,) = served.rig.messages("%DLQ%lite")
    assert bytes(dead.body) == b"x"


def test_queues_of_the_parent_are_not_assigned_one_by_one(served: Served) -> None:
    request = make("QueryAssignmentRequest")
    request.topic.name, request.group.name = PARENT, "lite"
    (assignment,) = served.call("QueryAssignment", request).assignments
    assert assignment.message_queue.id == -1


@pytest.mark.parametrize(
    ("group", "kind", "topic", "text"),
    [
        ("usual", ClientType.LITE_PUSH_CONSUMER, PARENT, "regular group cannot use LITE mode"),
        ("lite", ClientType.PUSH_CONSUMER, PARENT, "lite group must use LITE mode"),
        ("lite", ClientType.LITE_PUSH_CONSUMER, "many", "is expected to bind topic lite-parent, but actual is many"),
    ],
)
def test_consumers_are_in_groups_of_their_kind(
    served: Served, group: str, kind: ClientType, topic: str, text: str
) -> None:
    stream, answers = served.tell(settings(group, kind, topic))
    assert answers == []
    assert served.client.status(stream) not in (None, "0")
    assert text in unquote(served.client.headers[stream]["grpc-message"])


def test_subscriptions_that_cannot_be_are_refused(served: Served) -> None:
    served.tell(settings())
    assert sync(served, ADD, "a b").code == Code.ILLEGAL_LITE_TOPIC
    assert sync(served, ADD, "a", topic="many").code == Code.ILLEGAL_TOPIC
    assert sync(served, ADD, "a", group="usual").code == Code.ILLEGAL_TOPIC
    assert sync(served, 9, "a").code == Code.BAD_REQUEST
    many = [f"n{number}" for number in range(302)]
    assert sync(served, ALL, *many, group="few").code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert sync(served, ALL, *many[:301], group="few").code == Code.OK
    assert sync(served, ALL, *[f"n{number}" for number in range(2_300)]).code == Code.OK


def test_messages_of_other_kinds_do_not_belong_into_the_parent(served: Served) -> None:
    assert served.send(message(PARENT)).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert served.send(message("t", lite_topic="a")).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert send(served, "x", "a/b").code == Code.ILLEGAL_LITE_TOPIC


def test_client_is_told_that_another_has_taken_over(served: Served) -> None:
    stream, _ = served.tell(settings("one"))
    sync(served, ADD, "a", group="one")
    served.client_id = "other"
    other, _ = served.tell(settings("one"))
    assert sync(served, ADD, "a", group="one").code == Code.OK
    served.step()
    _, command = served.answers("Telemetry", stream)
    assert command.notify_unsubscribe_lite_command.lite_topic == "a"
    assert len(served.answers("Telemetry", other)) == 1
    send(served, "x", "a")
    assert bodies(served.receive(PARENT, "one")) == ["x"]


def test_client_that_says_farewell_is_subscribed_to_nothing(served: Served) -> None:
    served.tell(settings())
    sync(served, ADD, "a")
    farewell = make("NotifyClientTerminationRequest")
    farewell.group.name = "lite"
    assert served.call("NotifyClientTermination", farewell).status.code == Code.OK
    served.step()
    served.client_id = "other"
    served.tell(settings())
    sync(served, ADD, "a")
    send(served, "x", "a")
    assert bodies(served.receive(PARENT, "lite")) == ["x"]
    assert len(served.rig.broker._lite._registry) == 1


def test_client_that_works_on_many_messages_gets_no_more(served: Served) -> None:
    served.tell(settings())
    names = [f"n{number}" for number in range(102)]
    sync(served, ALL, *names)
    for name in names:
        send(served, name, name)
    found: list[Message] = []
    while len(found) < 102:
        found += served.receive(PARENT, "lite", auto_renew=True)
    send(served, "x", "more")
    sync(served, ADD, "more")
    stream = served.begin("ReceiveMessage", served.receive_request(PARENT, "lite", auto_renew=True))
    first, *_ = served.answers("ReceiveMessage", stream)
    assert first.status.code == Code.FORBIDDEN
    acknowledge(served, *found[:2])
    assert bodies(served.receive(PARENT, "lite", auto_renew=True)) == ["x"]
