"""Clients of the remoting protocol at a proxy: which broker gets what they ask, and what brokers ask them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.proxy import remoting as module
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import (
    LOCK_ANSWER,
    LOCK_REQUEST,
    LockRequest,
    MessageQueue,
)
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.proxy.clustered import NAMESERVER
from tests.broker.rocketmq.proxy.remoting_clients_rig import ADDRESS, Proxied


@pytest.fixture
def proxied() -> Proxied:
    return Proxied()


def test_every_broker_is_where_the_proxy_is(proxied: Proxied) -> None:
    client = proxied.client()
    answer = client.route()
    route = TOPIC_ROUTE.read(answer.body)
    assert {each.broker_name: each.broker_addrs for each in route.broker_datas} == {
        "broker-g": {0: ADDRESS},
        "broker-1": {0: ADDRESS},
    }
    assert sorted((each.broker_name, each.write_queue_nums) for each in route.queue_datas) == [
        ("broker-1", 4),
        ("broker-g", 4),
    ]
    assert b'{"0":"10.0.0.7:8080"}' in answer.body
    old = client.answers.pop(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=300, topic="many"))
    assert b'{0:"10.0.0.7:8080"}' in old.body
    assert TOPIC_ROUTE.read(old.body) == route
    assert client.route("nothing").code == ResponseCode.TOPIC_NOT_EXIST


def test_a_request_goes_to_the_broker_that_it_names(proxied: Proxied) -> None:
    client = proxied.client()
    for broker, rig in (("broker-1", proxied.served.rigs[1]), ("broker-g", proxied.served.rigs[0])):
        assert client.send(broker.encode(), broker).code == ResponseCode.SUCCESS
        assert [bytes(each.body) for each in rig.messages("many")] == [broker.encode()]
        answer = client.answers.pop(client.pull(broker))
        assert [each.body for each in records_of(answer)] == [broker.encode()]
        assert client.call(RequestCode.GET_MAX_OFFSET, topic="many", queueId=0, bname=broker).ext_fields == {
            "offset": "1"
        }


def test_a_request_that_names_no_broker(proxied: Proxied) -> None:
    client = proxied.client()
    client.route()
    answer = client.send(b"x", broker="")
    assert (answer.code, answer.remark) == (ResponseCode.VERSION_NOT_SUPPORTED, "Request doesn't have field bname")
    assert client.send(b"x", broker="nobody").code == ResponseCode.SYSTEM_ERROR
    # Where there is one broker only, it is for that.
    alone = Proxied(others=0)
    client = alone.client()
    client.route()
    assert client.send(b"x", broker="").code == ResponseCode.SUCCESS


def test_requests_that_wait_for_a_broker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD_BYTES_MAX", 15_000)
    proxied = Proxied()
    proxied.pass_time(2_000)
    proxied.served.network.is_stuck = True
    client = proxied.client()
    fields: dict[str, Any] = {"topic": "many", "queueId": 0, "bname": "nobody"}
    first, second = (client.ask(RequestCode.GET_MAX_OFFSET, b"x" * 10_000, **fields) for _ in range(2))
    assert (first in client.answers, client.answers[second].code) == (False, ResponseCode.SYSTEM_BUSY)
    proxied.served.network.is_stuck = False
    proxied.step()
    assert client.answers[first].remark == "cannot find broker nobody"
    # Requests for known data no longer wait.
    proxied.pass_time(2_000)
    assert client.call(RequestCode.GET_MAX_OFFSET, b"x" * 10_000, **fields).remark == "cannot find broker nobody"


def test_a_route_is_not_asked_for_with_more_than_nameservers_take(proxied: Proxied) -> None:
    client = proxied.client()
    answer = client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="many", more="x" * 70_000)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the request is too large for a nameserver")
    assert client.route().code == ResponseCode.SUCCESS


def test_requests_that_clients_may_not_make(proxied: Proxied) -> None:
    client = proxied.client()
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO, 99_999):
        assert client.call(code, topic="many", bname="broker-1").code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert client.call(RequestCode.LOCK_BATCH_MQ, b"garbage").code == ResponseCode.VERSION_NOT_SUPPORTED


def test_waiting_pull_waits_at_the_broker(proxied: Proxied) -> None:
    client, other = proxied.client(), proxied.client()
    waiting = client.pull(wait_ms=60_000)
    proxied.pass_time(40_000)
    assert waiting not in client.answers
    other.send(b"late")
    assert [each.body for each in records_of(client.answers[waiting])] == [b"late"]


def test_brokers_know_the_groups_of_clients_and_tell_them_of_others(proxied: Proxied) -> None:
    first, second = proxied.client(), proxied.client()
    first.route()
    second.route()
    assert first.heartbeat("first").code == ResponseCode.SUCCESS
    assert second.heartbeat("second").code == ResponseCode.SUCCESS
    assert [each.code for each in first.asked].count(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED) >= 2
    for rig in proxied.served.rigs:
        members = bytes(rig.peer().call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").body)
        assert sorted(fastjson.loads(members.decode())["consumerIdList"]) == ["first", "second"]
    listed = first.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    assert sorted(fastjson.loads(bytes(listed.body).decode())["consumerIdList"]) == ["first", "second"]
    second.session.end()
    proxied.clients.remove(second)
    proxied.step()
    listed = first.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    assert fastjson.loads(bytes(listed.body).decode())["consumerIdList"] == ["first"]
    answer = first.call(RequestCode.UNREGISTER_CLIENT, clientID="first", consumerGroup="g", producerGroup="p")
    assert answer.code == ResponseCode.SUCCESS
    for rig in proxied.served.rigs:
        assert not rig.peer().call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").body


def test_a_heartbeat_goes_to_the_brokers_that_the_client_uses_and_one_is_enough(proxied: Proxied) -> None:
    client = proxied.client()
    client.route("t")
    proxied.served.end_broker(1)
    assert client.heartbeat("me").code == ResponseCode.SUCCESS
    client.route("many")
    assert client.heartbeat("me").code == ResponseCode.SUCCESS
    proxied.served.end_broker(0)
    assert client.heartbeat("me").code == ResponseCode.SYSTEM_ERROR


def test_locks_are_of_the_broker_of_their_queues(proxied: Proxied) -> None:
    client = proxied.client()
    body = LOCK_REQUEST.write(LockRequest("g", "me", [MessageQueue("broker-1", 2, "many")]))
    answer = client.call(RequestCode.LOCK_BATCH_MQ, body)
    assert LOCK_ANSWER.read(answer.body).lock_ok_mq_set == [MessageQueue("broker-1", 2, "many")]
    assert client.call(RequestCode.UNLOCK_BATCH_MQ, body).code == ResponseCode.SUCCESS


def test_oneway_request_arrives_and_gets_no_answer(proxied: Proxied) -> None:
    client = proxied.client()
    client.send(b"x")
    client.heartbeat("me")
    fields: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "many",
        "queueId": 0,
        "commitOffset": 1,
        "bname": "broker-1",
    }
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, flag=FrameFlag.ONE_WAY, **fields)
    assert client.answers == {}
    asked = client.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="many", queueId=0, bname="broker-1")
    assert asked.ext_fields == {"offset": "1"}


def test_question_of_a_broker_is_answered_by_the_client(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    client = proxied.client()
    client.send(b"x")
    (pipe,) = [pipe for _, pipe in proxied.served.network.pipes if pipe.far.host.port and _is_for(pipe, proxied, 1)]
    got: list[Frame] = []
    monkeypatch.setattr(proxied.served.rigs[1].broker, "receive", lambda frame, session: got.append(frame))
    pipe.far.send(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 77, ext_fields={"clientId": "me"}))
    proxied.step()
    (question,) = client.asked
    assert (question.code, question.ext_fields) == (RequestCode.GET_CONSUMER_RUNNING_INFO, {"clientId": "me"})
    client.put(Frame(ResponseCode.SUCCESS, question.opaque, FrameFlag.RESPONSE, body=b"info"))
    assert [(each.opaque, bytes(each.body)) for each in got] == [(77, b"info")]
    # An answer to nothing is nothing.
    client.put(Frame(ResponseCode.SUCCESS, question.opaque, FrameFlag.RESPONSE, body=b"info"))
    assert len(got) == 1
    monkeypatch.setattr(module, "_QUESTIONS_MAX", 1)
    for number in (78, 79):
        pipe.far.send(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, number))
    proxied.step()
    assert [(each.opaque, each.code) for each in got[1:]] == [(79, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)]
    proxied.pass_time(31_000)
    pipe.far.send(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 80))
    proxied.step()
    assert client.asked[-1].code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert len(client.asked) == 3


def _is_for(pipe: Any, proxied: Proxied, number: int) -> bool:
    address = str(proxied.served.rigs[number].options.address)
    return any(each is pipe and place == address for place, each in proxied.served.network.pipes)


def test_a_broker_that_dies_is_an_error_and_is_found_again(proxied: Proxied) -> None:
    client = proxied.client()
    waiting = client.pull()
    address = str(proxied.served.rigs[1].options.address)
    service = proxied.served.network.services[address]
    proxied.served.network.end(address)
    proxied.step()
    assert client.answers[waiting].code == ResponseCode.SYSTEM_ERROR
    assert client.send(b"x").code == ResponseCode.SYSTEM_ERROR
    assert client.send(b"x", "broker-g").code == ResponseCode.SUCCESS
    proxied.served.network.services[address] = service
    proxied.pass_time(1_000)
    assert client.send(b"x").code == ResponseCode.SUCCESS


def test_a_client_that_is_gone_leaves_no_connections(proxied: Proxied, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    client = proxied.client()
    client.pull()
    count = len(proxied.served.network.pipes)
    client.session.end()
    proxied.clients.remove(client)
    proxied.step()
    assert len(proxied.served.network.pipes) == count - 1
    assert not proxied.service._clients
    assert not caplog.records


def test_a_client_that_is_gone_before_a_broker_is_reached(proxied: Proxied) -> None:
    client = proxied.client()
    client.route()
    count = len(proxied.served.network.pipes)
    frame = Frame(RequestCode.GET_MAX_OFFSET, 9, ext_fields={"topic": "many", "queueId": "0", "bname": "broker-1"})
    data = encode_frame(frame)
    client.session.receive(memoryview(data))
    client.session.end()
    proxied.clients.remove(client)
    proxied.step()
    assert len(proxied.served.network.pipes) == count


def test_the_version_of_a_client_reaches_the_broker(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    client = proxied.client()
    client.route()
    got: list[Frame] = []
    monkeypatch.setattr(proxied.served.rigs[1].broker, "receive", lambda frame, session: got.append(frame))
    client.ask(RequestCode.GET_MAX_OFFSET, version=321, topic="many", queueId=0, bname="broker-1")
    assert [each.version for each in got] == [321]


def test_without_nameservers_there_are_no_routes(proxied: Proxied) -> None:
    proxied.served.network.end(NAMESERVER)
    client = proxied.client()
    assert client.route().code == ResponseCode.SYSTEM_ERROR
    assert client.heartbeat("me").code == ResponseCode.SYSTEM_ERROR
