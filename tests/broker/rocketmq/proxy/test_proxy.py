"""The proxy before several brokers: which it asks, and what it answers when one does not."""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from broker.rocketmq.replication.options import Role
from formats.rocketmq.grpc.codes import Code, MessageType, TransactionResolution
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make, time_of_ms
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.grpc.grpc_service_rig import consumer, end, endpoints, producer, resource
from tests.broker.rocketmq.grpc.served import message
from tests.broker.rocketmq.proxy.clustered import NAMESERVER, Clustered
from tests.broker.rocketmq.rig import OPTIONS, Rig


@pytest.fixture
def served() -> Clustered:
    """A proxy before `broker-g` and `broker-1`; both have topic `many`, with four queues each."""
    return Clustered(others=1)


def send(served: Clustered, number: int, **system: Any) -> Message:
    return served.send(message("many", str(number).encode(), message_id=f"ID-{number}", **system))


def receive(served: Clustered, broker: str, **more: Any) -> list[Message]:
    """Receive from the broker of a name."""
    request = served.receive_request("many", **more)
    request.message_queue.broker.name = broker
    stream = served.begin("ReceiveMessage", request)
    if served.client.status(stream) is None:
        served.pass_time(6_000)
    answers = served.answers("ReceiveMessage", stream)
    return [each.message for each in answers if each.WhichOneof("content") == "message"]


# -- which broker


def test_a_route_has_the_queues_of_every_broker(served: Clustered) -> None:
    answer = served.call("QueryRoute", make("QueryRouteRequest", topic=resource("many"), endpoints=endpoints()))
    assert answer.status.code == Code.OK
    counts = Counter(each.broker.name for each in answer.message_queues)
    assert counts == {"broker-g": 4, "broker-1": 4}
    assert {tuple(each.accept_message_types) for each in answer.message_queues} == {(1, 2, 3, 4)}
    assert all(each.broker.endpoints == endpoints() for each in answer.message_queues)
    assigned = served.call(
        "QueryAssignment",
        make("QueryAssignmentRequest", topic=resource("many"), group=resource("g"), endpoints=endpoints()),
    )
    queues = [(each.message_queue.broker.name, each.message_queue.id) for each in assigned.assignments]
    assert queues == [("broker-1", -1), ("broker-g", -1)]


def test_messages_go_to_all_queues_and_those_of_a_group_to_one(served: Clustered) -> None:
    for number in range(8):
        assert send(served, number).status.code == Code.OK
    for rig in served.rigs:
        assert [len(rig.messages("many", queue)) for queue in range(4)] == [1, 1, 1, 1]
    before = [sum(len(rig.messages("many", queue)) for queue in range(4)) for rig in served.rigs]
    for number in range(8, 12):
        send(served, number, message_group="x", message_type=MessageType.FIFO)
    after = [sum(len(rig.messages("many", queue)) for queue in range(4)) for rig in served.rigs]
    assert sorted(now - then for now, then in zip(after, before, strict=True)) == [0, 4]


def test_a_consumer_is_given_and_acknowledges_what_the_broker_of_its_choice_has(served: Clustered) -> None:
    for number in range(8):
        send(served, number)
    first, second = receive(served, "broker-g"), receive(served, "broker-1")
    assert (len(first), len(second)) == (4, 4)
    assert {each.system_properties.receipt_handle.split(" ")[5] for each in first} == {"broker-g"}
    handles = [each.system_properties.receipt_handle for each in first + second]
    answer = served.acknowledge(*handles, topic="many")
    assert answer.status.code == Code.OK
    served.pass_time(30_000)
    assert (receive(served, "broker-g"), receive(served, "broker-1")) == ([], [])


def test_a_consumer_without_a_choice_is_sent_to_each_in_turn(served: Clustered) -> None:
    for number in range(8):
        send(served, number)
    assert len(receive(served, "nobody")) == 4
    assert len(receive(served, "")) == 4


def test_a_broker_that_may_not_be_written_to_is_not(served: Clustered) -> None:
    served.rigs[1].topics.put(TopicConfig("many", 4, 4, Permission.READ, attributes={"message.type": "MIXED"}), 1)
    for number in range(8):
        assert send(served, number).status.code == Code.OK
    assert not any(served.rigs[1].messages("many", queue) for queue in range(4))
    served.rigs[0].topics.put(TopicConfig("many", 4, 4, Permission.READ, attributes={"message.type": "MIXED"}), 1)
    served.pass_time(20_500)
    send(served, 8)
    assert send(served, 9).status.code == Code.FORBIDDEN


def test_handles_of_a_broker_that_there_is_not(served: Clustered) -> None:
    sent = send(served, 0)
    assert sent.status.code == Code.OK
    (received,) = receive(served, "broker-1") + receive(served, "broker-g")
    words = received.system_properties.receipt_handle.split(" ")
    words[5] = "nobody"
    (entry,) = served.acknowledge(" ".join(words), topic="many").entries
    assert entry.status.code == Code.INVALID_RECEIPT_HANDLE
    change = make("ChangeInvisibleDurationRequest", receipt_handle=" ".join(words))
    change.group.name, change.topic.name = "g", "many"
    change.invisible_duration.CopyFrom(duration_of_ms(20_000))
    assert served.call("ChangeInvisibleDuration", change).status.code == Code.INVALID_RECEIPT_HANDLE
    forward = make("ForwardMessageToDeadLetterQueueRequest", receipt_handle=" ".join(words))
    forward.group.name, forward.topic.name = "g", "many"
    answer = served.call("ForwardMessageToDeadLetterQueue", forward)
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
    handle = base64.urlsafe_b64encode(b"v1 many nobody 1700000000000 ID").decode()
    request = make("RecallMessageRequest", topic=resource("many"), recall_handle=handle)
    assert served.call("RecallMessage", request).status.code == Code.BAD_REQUEST
    request.recall_handle = "none"
    assert served.call("RecallMessage", request).status.code == Code.INTERNAL_SERVER_ERROR


def test_handles_are_good_for_another_proxy(served: Clustered) -> None:
    send(served, 0)
    (received,) = receive(served, "broker-1") + receive(served, "broker-g")
    other = Clustered(served.rig)
    other.rigs, other.network.services = served.rigs, {**served.network.services, **other.network.services}
    answer = other.acknowledge(received.system_properties.receipt_handle, topic="many")
    assert answer.status.code == Code.OK


# -- brokers and nameservers that are not there


def test_a_broker_that_is_killed_fails_what_it_was_asked_and_the_other_takes_over(served: Clustered) -> None:
    for number in range(8):
        send(served, number)
    waiting = served.begin("ReceiveMessage", served.receive_request("many", group="other"))
    served.end_broker(1)
    assert [send(served, number).status.code for number in range(8, 16)] == [Code.OK] * 8
    served.pass_time(6_000)
    assert served.answers("ReceiveMessage", waiting)[0].status.code == Code.OK


def test_a_consumer_whose_broker_is_killed_is_told_so(served: Clustered) -> None:
    request = served.receive_request("many")
    request.message_queue.broker.name = "broker-1"
    waiting = served.begin("ReceiveMessage", request)
    served.end_broker(1)
    served.step()
    first, last = served.answers("ReceiveMessage", waiting)
    assert first.status.code == Code.INTERNAL_SERVER_ERROR
    assert last.WhichOneof("content") == "delivery_timestamp"
    assert served.client.status(waiting) == "0"


def test_a_broker_that_cannot_be_reached_while_nameservers_name_it(served: Clustered) -> None:
    send(served, 0)
    served.network.end(str(served.rigs[0].options.address))
    served.network.end(str(served.rigs[1].options.address))
    codes = [send(served, number).status.code for number in range(1, 5)]
    assert codes == [Code.INTERNAL_SERVER_ERROR] * 4
    # It is not dialed for each request.
    assert len(served.network.dialed) <= 8


def test_a_broker_that_went_while_nobody_was_connected_to_it(served: Clustered) -> None:
    request = make("QueryRouteRequest", topic=resource("many"), endpoints=endpoints())
    assert len(served.call("QueryRoute", request).message_queues) == 8
    assert str(served.rig.options.address) not in served.network.dialed
    served.end_broker(0)
    # Where brokers are is looked up before the topic is.
    served.cluster._brokers._due_ms = 0
    served.pass_time(1_500)
    assert [send(served, number).status.code for number in range(8)] == [Code.OK] * 8


def test_the_only_broker_is_missed_before_its_topics_are() -> None:
    served = Clustered()
    assert send(served, 0).status.code == Code.OK
    (received,) = receive(served, "broker-g")
    served.end_broker(0)
    assert send(served, 1).status.code == Code.INTERNAL_SERVER_ERROR
    served.pass_time(5_000)
    assert send(served, 2).status.code == Code.INTERNAL_SERVER_ERROR
    handle = received.system_properties.receipt_handle
    (entry,) = served.acknowledge(handle, topic="many").entries
    assert entry.status.code == Code.INTERNAL_SERVER_ERROR
    served.network.services[str(served.rig.options.address)] = served.rig.broker
    served.pass_time(2_000)
    (entry,) = served.acknowledge(handle, topic="many").entries
    assert entry.status.code == Code.OK
    assert send(served, 3).status.code == Code.OK
    served.end_broker(0)
    served.pass_time(70_000)
    assert send(served, 4).status.code == Code.TOPIC_NOT_FOUND
    (entry,) = served.acknowledge(handle, topic="many").entries
    assert entry.status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_broker_that_is_back_is_found_again(served: Clustered) -> None:
    send(served, 0)
    served.end_broker(1)
    assert send(served, 1).status.code == Code.OK
    served.network.services[str(served.rigs[1].options.address)] = served.rigs[1].broker
    served.pass_time(41_000)
    for number in range(2, 12):
        assert send(served, number).status.code == Code.OK
    assert sum(len(served.rigs[1].messages("many", queue)) for queue in range(4)) >= 4


def test_a_topic_whose_master_is_gone_is_looked_up_until_there_is_another() -> None:
    served = Clustered()
    served.rig.options.broker_id = 2
    assert send(served, 0).status.code == Code.FORBIDDEN
    served.rig.options.broker_id = 0
    served.pass_time(500)
    # The answer of before is used once more, while it is looked up.
    send(served, 1)
    assert send(served, 2).status.code == Code.OK


def test_a_broker_that_says_that_it_is_no_master_is_looked_up() -> None:
    served = Clustered()
    old = served.rig
    new = Rig(replace(OPTIONS, address=Host("127.0.0.1", OPTIONS.address.port + 10), broker_id=2))
    new.topics.put(TopicConfig("many", 4, 4, attributes={"message.type": "MIXED"}), 0)
    served.rigs.append(new)
    served.network.services[str(new.options.address)] = new.broker
    assert send(served, 0).status.code == Code.OK
    served.pass_time(2_000)
    # Another one is elected, and no connection is lost.
    old.role.options.role = Role.SLAVE
    old.options.broker_id, new.options.broker_id = 3, 0
    assert send(served, 1).status.code != Code.OK
    served.pass_time(1_500)
    assert send(served, 2).status.code == Code.OK
    assert sum(len(new.messages("many", queue)) for queue in range(4)) == 1


def test_a_broker_that_does_not_answer_in_time(served: Clustered) -> None:
    for number in range(8):
        send(served, number)
    for _, pipe in served.network.pipes:
        pipe.is_stuck = True
    stream = served.begin("SendMessage", make("SendMessageRequest", messages=[message("many")]))
    served.pass_time(2_500)
    assert served.client.status(stream) is None
    served.pass_time(1_500)
    (answer,) = served.answers("SendMessage", stream)
    assert answer.status.code == Code.PROXY_TIMEOUT


def test_the_next_nameserver_is_asked_if_the_first_is_not_there(served: Clustered) -> None:
    second = "127.0.0.1:9877"
    served.network.services[second] = served.network.services.pop(NAMESERVER)
    assert send(served, 0).status.code == Code.OK
    served.network.dialed.clear()
    request = make("QueryRouteRequest", topic=resource("t"), endpoints=endpoints())
    assert served.call("QueryRoute", request).status.code == Code.OK
    assert NAMESERVER not in served.network.dialed


def test_without_nameservers_what_is_known_is_used_and_the_rest_refused(served: Clustered) -> None:
    assert send(served, 0).status.code == Code.OK
    served.network.end(NAMESERVER)
    served.pass_time(60_000)
    assert send(served, 1).status.code == Code.OK
    answer = served.send(message("t"))
    assert answer.status.code == Code.INTERNAL_SERVER_ERROR
    assert "cannot be reached" in answer.status.message


def test_a_topic_that_is_made_is_there_at_once(served: Clustered) -> None:
    request = make("QueryRouteRequest", topic=resource("new"), endpoints=endpoints())
    assert served.call("QueryRoute", request).status.code == Code.TOPIC_NOT_FOUND
    served.rig.topics.put(TopicConfig("new", 2, 2), served.rig.wall_ms)
    assert len(served.call("QueryRoute", request).message_queues) == 2


def test_a_nameserver_that_speaks_nonsense(served: Clustered, monkeypatch: pytest.MonkeyPatch) -> None:
    def nonsense(frame: Frame, connection: object, now_ms: int) -> Frame:
        return Frame(0, frame.opaque, 1, body=b"{]")

    served.step()
    monkeypatch.setattr(served, "register", lambda: None)
    monkeypatch.setattr(served.nameserver, "answer", nonsense)
    assert send(served, 0).status.code == Code.INTERNAL_SERVER_ERROR
    monkeypatch.undo()
    served.pass_time(2_000)
    assert send(served, 1).status.code == Code.OK


# -- clients


def test_messages_for_a_client_that_left_are_given_back(served: Clustered) -> None:
    served.client_id = "leaving"
    served.tell(consumer())
    request = served.receive_request("many")
    request.message_queue.broker.name = "broker-g"
    waiting = served.begin("ReceiveMessage", request)
    served.call("NotifyClientTermination", make("NotifyClientTerminationRequest", group=resource("g")))
    assert served.client.status(waiting) == "0"
    served.client_id = "staying"
    for number in range(8):
        send(served, number)
    served.pass_time(3_500)
    attempts = [each.system_properties.delivery_attempt for each in receive(served, "broker-g")]
    assert sorted(attempts) == [1, 1, 1, 2]


def test_a_group_is_as_its_topic_has_it(served: Clustered) -> None:
    served.rigs[1].groups.put(GroupConfig("g", retry_max_times=4), 1)
    settings = consumer()
    settings.subscription.subscriptions[0].topic.name = "many"
    _, (answer,) = served.tell(settings)
    assert answer.settings.backoff_policy.max_attempts == 5


def transaction(served: Clustered) -> Message:
    return send(served, 1, message_type=4, born_timestamp=time_of_ms(served.rig.wall_ms))


def has_producers(rig: Rig, group: str) -> bool:
    answer = rig.peer().call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup=group)
    return answer.code == ResponseCode.SUCCESS


def orphans(served: Clustered, stream: int) -> list[Message]:
    commands = served.answers("Telemetry", stream)
    return [each for each in commands if each.WhichOneof("command") == "recover_orphaned_transaction_command"]


def test_a_transaction_is_ended_where_it_began(served: Clustered) -> None:
    for number in range(4):
        sent = send(served, number, message_type=4)
        assert end(served, TransactionResolution.COMMIT, sent.entries[0].transaction_id).status.code == Code.OK
    served.step()
    stored = [sum(len(rig.messages("many", queue)) for queue in range(4)) for rig in served.rigs]
    assert sum(stored) == 4
    assert all(stored)


def test_a_broker_that_is_back_asks_producers_again(served: Clustered) -> None:
    stream, _ = served.tell(producer("many"))
    served.pass_time(1_000)
    for address in [address for address, _ in served.network.pipes]:
        service = served.network.services[address]
        served.network.end(address)
        served.network.services[address] = service
    served.pass_time(21_000)
    transaction(served)
    served.pass_time(9_000)
    assert orphans(served, stream)


def test_a_producer_that_left_is_asked_no_more(served: Clustered) -> None:
    served.client_id = "leaving"
    left, _ = served.tell(producer("many"))
    served.client_id = "staying"
    stayed, _ = served.tell(producer("many"))
    served.pass_time(1_000)
    served.client_id = "leaving"
    served.call("NotifyClientTermination", make("NotifyClientTerminationRequest"))
    served.client_id = "staying"
    transaction(served)
    served.pass_time(9_000)
    assert not orphans(served, left)
    assert orphans(served, stayed)
    served.call("NotifyClientTermination", make("NotifyClientTerminationRequest"))
    served.step()
    assert not any(has_producers(rig, "many") for rig in served.rigs)


def test_producers_of_other_topics_are_nothing_to_brokers(served: Clustered) -> None:
    served.tell(producer("t"))
    served.tell(producer("many"))
    served.pass_time(25_000)
    assert not any(has_producers(rig, "t") for rig in served.rigs)
    assert all(has_producers(rig, "many") for rig in served.rigs)


def test_a_question_that_a_proxy_is_not_asked(served: Clustered) -> None:
    for number in range(8):
        send(served, number)
    (pipe,) = [pipe for address, pipe in served.network.pipes if address == str(served.rig.options.address)]
    answers: list[Frame] = []
    pipe.far._service = _Taking(answers)
    pipe.far.send(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 77))
    pipe.far.send(Frame(RequestCode.CHECK_TRANSACTION_STATE, 78, body=b"garbage"))
    served.step()
    assert [(each.opaque, each.code) for each in answers] == [(77, 3), (78, 3)]


class _Taking:
    """Keeps the frames that come."""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames

    def take(self, data: memoryview, at: int, end: int, session: object) -> int:
        return at

    def receive(self, frame: Frame, session: object) -> None:
        self.frames.append(frame._replace(body=b""))

    def disconnected(self, session: object) -> None: ...


def test_a_consumer_that_waits_longer_than_requests_may_take(served: Clustered) -> None:
    request = served.receive_request("many")
    request.message_queue.broker.name = "broker-g"
    request.long_polling_timeout.CopyFrom(duration_of_ms(20_000))
    stream = served.begin("ReceiveMessage", request, grpc_timeout="30S")
    served.pass_time(18_000)
    assert served.client.status(stream) is None
    served.pass_time(4_000)
    assert served.answers("ReceiveMessage", stream)[0].status.code == Code.MESSAGE_NOT_FOUND
