"""Messages with priorities over gRPC: before the broker of the process, and before one of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from formats.rocketmq.grpc.codes import Code, MessageType
from formats.rocketmq.grpc.messages import make
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from tests.broker.rocketmq.grpc.grpc_service_rig import endpoints, resource
from tests.broker.rocketmq.grpc.served import Served, message
from tests.broker.rocketmq.proxy.clustered import Clustered

TOPIC = "priorities"


@pytest.fixture(params=[Served, Clustered], ids=["alone", "cluster"])
def served(request: pytest.FixtureRequest) -> Served:
    made: Served = request.param()
    made.rig.topics.put(TopicConfig(TOPIC, 4, 4, attributes={"message.type": "PRIORITY"}), made.rig.wall_ms)
    return made


def test_the_route_says_what_the_topic_takes(served: Served) -> None:
    answer = served.call("QueryRoute", make("QueryRouteRequest", topic=resource(TOPIC), endpoints=endpoints()))
    assert answer.status.code == Code.OK
    assert {tuple(queue.accept_message_types) for queue in answer.message_queues} == {(MessageType.PRIORITY,)}


def test_the_highest_comes_first_with_its_priority(served: Served) -> None:
    for priority in (1, 3, 0, 9, 2):
        answer = served.send(message(TOPIC, b"%d" % priority, priority=priority))
        assert answer.status.code == Code.OK
    found = [each for _ in range(5) for each in served.receive(TOPIC, batch_size=1)]
    assert [each.body for each in found] == [b"3", b"9", b"2", b"1", b"0"]
    assert [each.system_properties.priority for each in found] == [3, 9, 2, 1, 0]
    assert {each.system_properties.message_type for each in found} == {MessageType.PRIORITY}
    assert not any(each.user_properties for each in found)


def test_a_message_without_a_priority_has_none(served: Served) -> None:
    assert served.send(message("t")).status.code == Code.OK
    (found,) = served.receive("t")
    assert not found.system_properties.HasField("priority")


@pytest.mark.parametrize(
    ("topic", "system", "code"),
    [
        (TOPIC, {}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (TOPIC, {"priority": 1, "message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (TOPIC, {"priority": -1}, Code.BAD_REQUEST),
        ("t", {"priority": 1}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
def test_a_message_of_the_wrong_type_is_refused(served: Served, topic: str, system: dict[str, Any], code: Code) -> None:
    assert served.send(message(topic, **system)).status.code == code
    assert served.receive(topic) == []
