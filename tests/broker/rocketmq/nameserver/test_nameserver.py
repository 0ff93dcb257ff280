"""The nameserver: captured requests answered as the original did, and what brokers may do besides."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import EXPIRED_MS, Routes
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, next_frame
from tests.broker.rocketmq.nameserver.nameserver_rig import Requests, no_settings
from tests.golden.rocketmq.captures import CAPTURES, streams

PORT = 19876
"""The golden nameserver's."""


def unordered(value: Any) -> Any:
    """JSON without the order of its lists and objects, which is that of Java's hash tables."""
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return sorted((unordered(item) for item in value), key=fastjson.dumps)
    return value


def test_captured_requests_are_answered_as_the_original_did() -> None:
    server = Nameserver(Routes(), KeyValues(b"", lambda _: None), no_settings())
    compared: dict[int, int] = {}
    for capture in (each for each in CAPTURES if each.startswith("pcap/")):
        answers: dict[tuple[int, int], Frame] = {}
        requests: list[tuple[int, int, Frame]] = []
        for stream in streams(capture):
            view, at = memoryview(stream.data), 0
            while PORT in (stream.source, stream.target) and (found := next_frame(view, at, len(view))) is not None:
                frame, at = found
                if frame.is_response:
                    answers[stream.target, frame.opaque] = frame
                else:
                    requests.append((stream.time_of(at), stream.source, frame))
        for _, port, request in sorted(requests, key=lambda each: each[0]):
            ours, theirs = server.answer(request, port, 0), answers.get((port, request.opaque))
            if theirs is None:
                continue
            assert ours is not None
            assert ours._replace(body=b"", ext_fields=None) == theirs._replace(body=b"", ext_fields=None)
            assert ours.ext_fields == theirs.ext_fields
            assert bool(ours.body) == bool(theirs.body)
            if ours.body:
                ours_value, theirs_value = (fastjson.loads(str(each.body, "utf-8")) for each in (ours, theirs))
                assert unordered(ours_value) == unordered(theirs_value)
                if request.code != RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
                    assert ours.body == theirs.body
            compared[request.code] = compared.get(request.code, 0) + 1
    assert compared[RequestCode.GET_ROUTEINFO_BY_TOPIC] > 30
    assert set(compared) >= {103, 104, 105, 106, 205, 206, 216, 327}


def test_topic_is_where_brokers_registered_it() -> None:
    requests = Requests()
    assert requests.route() is None
    assert requests.register("a").code == ResponseCode.SUCCESS
    requests.register("b", address="10.0.1.0:10911")
    assert requests.addresses() == [{"0": "10.0.0.0:10911"}, {"0": "10.0.1.0:10911"}]
    assert [queues["brokerName"] for queues in requests.route()["queueDatas"]] == ["a", "b"]


def test_slave_is_told_its_master_and_does_not_change_topics() -> None:
    requests = Requests()
    requests.register("a")
    answer = requests.register("a", 1, topics=("t", "u", "v"))
    assert answer.ext_fields == {"haServerAddr": "10.0.0.0:10912", "masterAddr": "10.0.0.0:10911"}
    assert requests.addresses() == [{"0": "10.0.0.0:10911", "1": "10.0.0.1:10911"}]
    assert requests.route("v") is None


def test_slave_that_becomes_master_keeps_its_address() -> None:
    requests = Requests()
    requests.register("a", 1, address="x:1")
    requests.register("a", 0, address="x:1")
    assert requests.addresses() == [{"0": "x:1"}]


def test_older_broker_does_not_replace_a_newer_one() -> None:
    requests = Requests()
    requests.register("a", address="x:1", state=5)
    requests.register("a", address="y:1", state=4)
    assert requests.addresses() == [{"0": "x:1"}]
    requests.register("a", address="y:1", state=6)
    assert requests.addresses() == [{"0": "y:1"}]


def test_single_topic_needs_a_broker_that_has_registered() -> None:
    requests = Requests()
    answer = requests.register("a", topics=("t",))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    assert requests.server.routes.cluster_info().cluster_addr_table == {}
    requests.register("a")
    assert requests.register("a", topics=("v",), counter=2).code == ResponseCode.SUCCESS
    assert requests.route("v") is not None


def test_silent_broker_is_taken_out_after_the_time_that_it_told() -> None:
    requests = Requests()
    requests.register("a")
    requests.register("b", address="10.0.1.0:10911", heartbeatTimeoutMillis="10000")
    for _ in range(3):
        requests.now_ms += 9000
        requests.ask(
            RequestCode.BROKER_HEARTBEAT, {"clusterName": "c", "brokerAddr": "10.0.1.0:10911", "brokerName": "b"}
        )
        requests.server.routes.expire(requests.now_ms)
    assert len(requests.addresses()) == 2
    requests.now_ms += 10_001
    requests.server.routes.expire(requests.now_ms)
    assert requests.addresses() == [{"0": "10.0.0.0:10911"}]
    requests.now_ms += EXPIRED_MS
    requests.server.routes.expire(requests.now_ms)
    assert requests.route() is None
    assert requests.server.routes.cluster_info() == ({}, {})


def test_broker_whose_connection_is_closed_is_taken_out() -> None:
    requests = Requests()
    requests.register("a", connection="one")
    requests.register("b", address="10.0.1.0:10911", connection="two")
    requests.server.routes.disconnected("one")
    assert requests.addresses() == [{"0": "10.0.1.0:10911"}]


def test_slave_acts_as_a_master_that_is_gone() -> None:
    requests = Requests(supports_acting_master=True)
    requests.register("a", 0, enableActingMaster="true", connection="master")
    requests.register("a", 1, enableActingMaster="true")
    assert requests.addresses() == [{"0": "10.0.0.0:10911", "1": "10.0.0.1:10911"}]
    requests.server.routes.disconnected("master")
    assert requests.addresses() == [{"0": "10.0.0.1:10911"}]
    assert requests.route()["queueDatas"][0]["perm"] == 4


def test_changed_topics_are_taken_over_and_unchanged_ones_left() -> None:
    requests = Requests()
    requests.register("a")
    requests.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    requests.register("a")
    assert requests.route()["queueDatas"][0]["perm"] == 4
    requests.register("a", counter=2)
    assert requests.route()["queueDatas"][0]["perm"] == 6


def test_version_says_whether_a_broker_must_register() -> None:
    requests = Requests()
    header = {"brokerName": "a", "brokerAddr": "10.0.0.0:10911", "clusterName": "c", "brokerId": "0"}
    body = b'{"counter":1,"stateVersion":0,"timestamp":5}'
    assert requests.ask(RequestCode.QUERY_DATA_VERSION, header, body).ext_fields == {"changed": "true"}
    requests.register("a")
    answer = requests.ask(RequestCode.QUERY_DATA_VERSION, header, body)
    assert (answer.ext_fields, answer.body) == ({"changed": "false"}, body)


def test_values_are_kept_and_told_to_brokers() -> None:
    requests = Requests()
    item = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"}
    answer = requests.ask(RequestCode.GET_KV_CONFIG, item)
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: ORDER_TOPIC_CONFIG Key: t",
    )
    requests.ask(RequestCode.PUT_KV_CONFIG, {**item, "value": "a:4"})
    assert requests.ask(RequestCode.GET_KV_CONFIG, item).ext_fields == {"value": "a:4"}
    assert requests.register("a").body == b'{"table":{"t":"a:4"}}'
    assert requests.route()["orderTopicConf"] == "a:4"
    assert KeyValues(requests.kept[-1], lambda _: None).get("ORDER_TOPIC_CONFIG", "t") == "a:4"
    requests.ask(RequestCode.DELETE_KV_CONFIG, item)
    assert requests.ask(RequestCode.GET_KV_CONFIG, item).code == ResponseCode.QUERY_NOT_FOUND


def test_value_that_cannot_be_kept_is_not_changed() -> None:
    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    server = Nameserver(Routes(), KeyValues(b'{"configTable":{"n":{"k":"v"}}}', full), no_settings())
    fields = {"namespace": "n", "key": "k", "value": "w"}
    answer = server.answer(Frame(RequestCode.PUT_KV_CONFIG, 1, ext_fields=fields), None, 0)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "No space left" in (answer.remark or "")
    answer = server.answer(Frame(RequestCode.GET_KV_CONFIG, 1, ext_fields=fields), None, 0)
    assert answer is not None
    assert answer.ext_fields == {"value": "v"}


def compressed(topic: bytes = b'z 4 8 6 SINGLE_TAG {"message.type":"FIFO"}', count: int = 2) -> bytes:
    def piece(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    topics = piece(topic) + piece(b"y 1 1 6 SINGLE_TAG {}")
    return zlib.compress(
        piece(b'{"counter":3}') + struct.pack(">i", count) + topics + piece(b"[]") + struct.pack(">i", 0)
    )


def test_registration_may_be_compressed() -> None:
    requests = Requests()
    header = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "c", "haServerAddr": "x:2", "brokerId": "0"}
    requests.ask(RequestCode.REGISTER_BROKER, {**header, "compressed": "true"}, compressed())
    (queues,) = requests.route("z")["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"]) == (4, 8)


@pytest.mark.parametrize(
    ("fields", "body", "remark"),
    [
        ({"bodyCrc32": "1"}, b"{}", "crc32 not match"),
        ({}, b"[]", "RegisterBrokerBody at offset 0: '[]' is not an object"),
        ({"brokerId": "x"}, b"{}", "RegisterBrokerRequest.brokerId at offset 0: 'x' is no integer"),
        ({"compressed": "true"}, b"xx", "cannot be inflated"),
        ({"compressed": "true"}, zlib.compress(bytes(65 << 20)), "more than 2097152 bytes when inflated"),
        ({"compressed": "true"}, zlib.compress(zlib.decompress(compressed())[:19]), "is cut off"),
        ({"compressed": "true"}, zlib.compress(zlib.decompress(compressed())[:60]), "42 bytes are not there"),
        ({"compressed": "true"}, compressed(count=9), "TopicConfig at offset 0: has 1 words, fewer than 5"),
        (
            {"compressed": "true"},
            compressed(b"x y z 6 SINGLE_TAG {}"),
            "readQueueNums at offset 0: 'y' is not an integer",
        ),
    ],
)
def test_registration_of_a_stranger_is_refused(fields: dict[str, str], body: bytes, remark: str) -> None:
    requests = Requests()
    header = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "c", "haServerAddr": "x:2", "brokerId": "0"}
    answer = requests.ask(RequestCode.REGISTER_BROKER, {**header, **fields}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    assert requests.server.routes.cluster_info() == ({}, {})


def test_unknown_request_is_refused_and_one_way_is_not_answered() -> None:
    requests = Requests()
    answer = requests.ask(9999)
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        " request type 9999 not supported",
    )
    one_way = Frame(RequestCode.BROKER_HEARTBEAT, 1, FrameFlag.ONE_WAY, ext_fields={})
    assert requests.server.answer(one_way, None, 0) is None


def test_answer_is_encoded_as_its_request_and_old_clients_get_old_json() -> None:
    requests = Requests()
    requests.register("a")
    asked = Frame(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext_fields={"topic": "t"}, encoding=HeaderEncoding.BINARY, version=121
    )
    answer = requests.server.answer(asked, None, 0)
    assert answer is not None
    assert answer.encoding is HeaderEncoding.BINARY
    assert b'"brokerAddrs":{0:"10.0.0.0:10911"}' in answer.body


def test_lists_of_topics() -> None:
    requests = Requests()
    requests.register("a")

    def names(code: int, **fields: str) -> list[str]:
        found: list[str] = fastjson.loads(str(requests.ask(code, fields).body, "utf-8"))["topicList"]
        return found

    assert names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["t", "u"]
    assert names(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c") == ["t", "u"]
    assert names(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="d") == []
    assert names(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == ["c", "a"]
    assert names(RequestCode.GET_UNIT_TOPIC_LIST) == []
    requests.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})
    assert names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["u"]
    queues = {"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 1}
    body = fastjson.dumps({"brokerDatas": [], "queueDatas": [queues]}).encode()
    requests.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "v"}, body)
    assert names(RequestCode.GET_UNIT_TOPIC_LIST) == ["v"]


def test_configuration_is_shown_and_changed() -> None:
    requests = Requests()
    shown = bytes(requests.ask(RequestCode.GET_NAMESRV_CONFIG).body).decode()
    assert shown.splitlines() == [
        "kvConfigPath=/kv",
        "notifyMinBrokerIdChanged=false",
        "returnOrderTopicConfigToBroker=true",
        "supportActingMaster=false",
    ]
    requests.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:4"})
    assert b"a:4" in bytes(requests.register().body)
    change = RequestCode.UPDATE_NAMESRV_CONFIG
    assert requests.ask(change, body=b"returnOrderTopicConfigToBroker=false\n").code == ResponseCode.SUCCESS
    assert requests.register(counter=2).body == b""
    assert b"returnOrderTopicConfigToBroker=false" in bytes(requests.ask(RequestCode.GET_NAMESRV_CONFIG).body)
    assert requests.kept_settings == [{"returnOrderTopicConfigToBroker": "false"}]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"kvConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION),
        (b"returnOrderTopicConfigToBroker=perhaps", ResponseCode.INVALID_PARAMETER),
        (b"color=red", ResponseCode.INVALID_PARAMETER),
        (b"supportActingMaster=true\nkvConfigPath=/x", ResponseCode.NO_PERMISSION),
        (b"\xff=1", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_configuration_that_cannot_be_changed_stays(text: bytes, code: ResponseCode) -> None:
    requests = Requests()
    before = bytes(requests.ask(RequestCode.GET_NAMESRV_CONFIG).body)
    assert requests.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text).code == code
    assert bytes(requests.ask(RequestCode.GET_NAMESRV_CONFIG).body) == before
    assert requests.kept_settings == []
