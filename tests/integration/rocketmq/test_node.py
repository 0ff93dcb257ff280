"""A RocketMQ node as a process: starts, stops, crashes, refusals, and peers that behave badly."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeFailed, RocketProcess, free_port, rocketmq_node
from formats.rocketmq.remoting.bodies.clients import LOCK_ANSWER
from formats.rocketmq.remoting.bodies.popping import ASSIGNMENTS
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO, TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, HeaderEncoding
from tests.broker.rocketmq.answers import records_of
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually

__all__ = ["rocketmq_node"]


@pytest.fixture(scope="module")
def rocketmq_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    """A node that tests share which do it no harm."""
    with RocketProcess(tmp_path_factory.mktemp("node") / "store") as node:
        yield node


def test_start_and_stop(rocketmq_node: RocketProcess) -> None:
    node = rocketmq_node
    assert node.ready_line == (
        f"bmqctl: rocketmq ready on 127.0.0.1:{node.nameserver_port} (nameserver), 127.0.0.1:{node.port} (broker), "
        f"{node.endpoint} (gRPC), 127.0.0.1:{node.remoting_port} (remoting) "
        f"[cluster: DefaultCluster, broker: broker-a, messages: 0, pid: {node.pid}]"
    )
    with Remote(node.port) as remote:
        for number in range(10):
            assert remote.send_message("kept", b"%d" % number).code == ResponseCode.SUCCESS
        assert remote.commit("kept", 0, 7).code == ResponseCode.SUCCESS
    assert (node.data_dir / "abort").exists()
    assert node.stop() == 0
    assert not (node.data_dir / "abort").exists()
    assert "Traceback" not in node.output
    offsets = json.loads(
        (node.data_dir / "config/consumerOffset.json").read_text().replace("{0:", '{"0":').replace("\t0:", '\t"0":')
    )
    assert offsets["offsetTable"]["kept@group"] == {"0": 7}
    node.start()
    assert ", messages: 10, " in node.ready_line
    with Remote(node.port) as remote:
        answer = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="group", topic="kept", queueId=0)
        assert answer.ext_fields == {"offset": "7"}
        assert [bytes(each.body) for each in records_of(remote.answer(remote.pull("kept", 7)))] == [b"7", b"8", b"9"]


def test_nameserver_knows_the_broker_and_its_topics_at_once(rocketmq_shared: RocketProcess) -> None:
    with Remote(rocketmq_shared.port) as broker, Remote(rocketmq_shared.nameserver_port) as nameserver:
        info = CLUSTER_INFO.read(nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        assert info.broker_addr_table["broker-a"].broker_addrs == {0: f"127.0.0.1:{rocketmq_shared.port}"}
        missing = nameserver.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="new")
        assert missing.code == ResponseCode.TOPIC_NOT_EXIST
        broker.send_message("new", b"")
        route = TOPIC_ROUTE.read(nameserver.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="new").body)
        assert [(each.broker_name, each.write_queue_nums) for each in route.queue_datas] == [("broker-a", 4)]


def test_broker_registers_with_nameservers_elsewhere(rocketmq_node: RocketProcess, tmp_path: Path) -> None:
    address = f"127.0.0.1:{rocketmq_node.nameserver_port}"
    config = tmp_path / "broker.conf"
    config.write_text(f"# another\nbrokerName = broker-b\nbrokerClusterName: other\nnamesrvAddr={address}\n")
    with RocketProcess(tmp_path / "other", config_file=config) as other:
        other.wait_for(f"registered with nameserver {address}")
        with Remote(rocketmq_node.nameserver_port) as nameserver:
            info = CLUSTER_INFO.read(nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)
            assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"], "other": ["broker-b"]}
            assert other.stop(signal.SIGINT) == 0
            info = CLUSTER_INFO.read(nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)
            assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}


def test_assignments_have_the_queues_of_other_brokers(rocketmq_node: RocketProcess, tmp_path: Path) -> None:
    address = f"127.0.0.1:{rocketmq_node.nameserver_port}"
    config = tmp_path / "broker.conf"
    config.write_text(f"brokerName=broker-b\nnamesrvAddr={address}\n")
    query = {"topic": "both", "consumerGroup": "group", "clientId": "one", "strategyName": "AVG"}
    with RocketProcess(tmp_path / "other", config_file=config) as other:
        other.wait_for(f"registered with nameserver {address}")
        with Remote(rocketmq_node.port) as near, Remote(other.port) as far:
            near.send_message("both", b"")
            far.send_message("both", b"")
            far.call(RequestCode.HEART_BEAT, HEARTBEAT)
            answer = far.call(RequestCode.QUERY_ASSIGNMENT, json.dumps(query).encode())
            found = ASSIGNMENTS.read(answer.body).message_queue_assignments
            assert found is not None
            brokers = [each.message_queue.broker_name for each in found]
            assert (brokers.count("broker-a"), brokers.count("broker-b")) == (4, 4)


def test_broker_finds_a_nameserver_that_comes_back(rocketmq_node: RocketProcess, tmp_path: Path) -> None:
    rocketmq_node.stop()
    address = f"127.0.0.1:{rocketmq_node.nameserver_port}"
    config = tmp_path / "broker.conf"
    # The other node has a broker-a of its own.
    config.write_text("brokerName=broker-b\n")
    nameservers = ["--nameserver", f"127.0.0.1:1; {address}"]
    with RocketProcess(tmp_path / "other", config_file=config, options=nameservers) as other:
        other.wait_for("nameserver 127.0.0.1:1 cannot be reached: Connection refused")
        other.wait_for(f"nameserver {address} cannot be reached: Connection refused")
        rocketmq_node.start()
        other.wait_for(f"registered with nameserver {address}")


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_killed_node_keeps_what_it_acknowledged(tmp_path: Path, flush: str) -> None:
    with RocketProcess(tmp_path / "store", options=["--flush", flush]) as node:
        with Remote(node.port) as remote:
            for number in range(50):
                remote.send_message("kept", b"%d" % number)
            node.kill()
        node.start()
        with Remote(node.port) as remote:
            found = [bytes(each.body) for at in (0, 32) for each in records_of(remote.answer(remote.pull("kept", at)))]
            assert found == [b"%d" % number for number in range(50)]
            answer = remote.send_message("kept", b"next")
            assert answer.ext_fields is not None
            assert answer.ext_fields["queueOffset"] == "50"


def test_killed_node_brings_back_what_was_popped_and_not_acknowledged(rocketmq_node: RocketProcess) -> None:
    node = rocketmq_node
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "popped", "maxMsgNums": 32, "invisibleTime": 2_000}
    fields |= {"queueId": -1, "bornTime": 0, "initMode": 0}
    with Remote(node.port) as remote:
        for number in range(20):
            remote.send_message("popped", b"%d" % number)
        popped = remote.call(RequestCode.POP_MESSAGE, pollTime=0, **fields)
        assert popped.ext_fields is not None
        assert len(records_of(popped)) == 20
        ms, revive_queue = popped.ext_fields["popTime"], popped.ext_fields["reviveQid"]
        for number in range(0, 20, 2):
            handle = f"0 {ms} 2000 {revive_queue} 0 broker-a 0 {number}"
            ack: dict[str, Any] = {"consumerGroup": "g", "topic": "popped", "queueId": 0, "offset": number}
            assert remote.call(RequestCode.ACK_MESSAGE, extraInfo=handle, **ack).code == ResponseCode.SUCCESS
        node.kill()
    node.start()
    found: dict[bytes, int] = {}
    with Remote(node.port) as remote:

        def all_found() -> bool:
            # Offsets are written from time to time: what was popped may come once more as it is.
            answer = remote.call(RequestCode.POP_MESSAGE, pollTime=2_000, **{**fields, "invisibleTime": 60_000})
            found.update({bytes(each.body): 1 for each in records_of(answer) if each.reconsume_times == 1})
            return len(found) >= 10

        eventually(all_found, state=lambda: sorted(found))
    assert sorted(map(int, found)) == list(range(1, 20, 2))
    assert "Traceback" not in node.output


def test_long_poll_is_answered_when_a_message_comes(rocketmq_shared: RocketProcess) -> None:
    with Remote(rocketmq_shared.port) as sender, Remote(rocketmq_shared.port, HeaderEncoding.BINARY) as consumer:
        sender.send_message("polled", b"first")
        opaque = consumer.pull("polled", 1, wait_ms=15_000)
        sender.send_message("polled", b"second")
        answer = consumer.answer(opaque)
        assert [bytes(each.body) for each in records_of(answer)] == [b"second"]
        assert answer.encoding is HeaderEncoding.BINARY


HEARTBEAT = json.dumps(
    {
        "clientID": "one",
        "consumerDataSet": [{"groupName": "group", "subscriptionDataSet": [{"topic": "t", "subString": "*"}]}],
    }
).encode()


def test_consumers_hear_of_each_other(rocketmq_shared: RocketProcess) -> None:
    with Remote(rocketmq_shared.port) as one:
        assert one.call(RequestCode.HEART_BEAT, HEARTBEAT).code == ResponseCode.SUCCESS
        one.wait_asked(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        with Remote(rocketmq_shared.port) as two:
            two.call(RequestCode.HEART_BEAT, HEARTBEAT.replace(b'"one"', b'"two"'))
            told = one.wait_asked(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
            assert (told.ext_fields, told.is_one_way) == ({"consumerGroup": "group"}, True)
            listed = one.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="group")
            assert json.loads(bytes(listed.body)) == {"consumerIdList": ["one", "two"]}
        one.wait_asked(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        listed = one.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="group")
        assert json.loads(bytes(listed.body)) == {"consumerIdList": ["one"]}


def test_queue_is_locked_for_one_consumer(rocketmq_shared: RocketProcess) -> None:
    queue = {"brokerName": "broker-a", "queueId": 1, "topic": "locked"}

    def body(client: str) -> bytes:
        return json.dumps({"consumerGroup": "group", "clientId": client, "mqSet": [queue]}).encode()

    with Remote(rocketmq_shared.port) as remote:
        # Only queues that exist are locked.
        remote.send_message("locked", b"makes the topic")
        locked = LOCK_ANSWER.read(remote.call(RequestCode.LOCK_BATCH_MQ, body("one")).body)
        assert [each.queue_id for each in locked.lock_ok_mq_set] == [1]
        locked = LOCK_ANSWER.read(remote.call(RequestCode.LOCK_BATCH_MQ, body("two")).body)
        assert locked.lock_ok_mq_set == []
        remote.call(RequestCode.UNLOCK_BATCH_MQ, body("one"))
        locked = LOCK_ANSWER.read(remote.call(RequestCode.LOCK_BATCH_MQ, body("two")).body)
        assert [each.queue_id for each in locked.lock_ok_mq_set] == [1]


@pytest.mark.parametrize("is_broker", [True, False])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "1195725856 bytes are more than the 16777216 that a frame may have"),
        (b"\0\0\0\x01\0\0\0\0", "1 bytes have no room for the header's length"),
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "16777217 bytes are more than the 16777216"),
        (b"\0\0\0\x06\0\0\0\x02{]", "expecting property name"),
        (b"\0\0\0\x05\x07\0\0\x01x", "7 is neither JSON (0) nor binary (1)"),
    ],
)
def test_garbage_ends_its_connection(rocketmq_shared: RocketProcess, is_broker: bool, data: bytes, reason: str) -> None:
    node = rocketmq_shared
    port = node.port if is_broker else node.nameserver_port
    with Remote(port) as witness, socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
        sock.sendall(data)
        assert sock.recv(1) == b""
        node.wait_for(reason)
        assert witness.call(RequestCode.POP_ROLLBACK).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_half_a_frame_is_waited_for_and_forgotten(rocketmq_shared: RocketProcess) -> None:
    with socket.create_connection(("127.0.0.1", rocketmq_shared.port), WAIT_S) as sock:
        sock.sendall(b"\0\0\0\x40\0\0")
    with Remote(rocketmq_shared.port) as remote:
        assert remote.send_message("half", b"").code == ResponseCode.SUCCESS


def test_unknown_request_is_answered(rocketmq_shared: RocketProcess) -> None:
    with Remote(rocketmq_shared.port) as remote:
        answer = remote.call(RequestCode.GET_BROKER_EPOCH_CACHE)
        assert (answer.code, answer.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {int(RequestCode.GET_BROKER_EPOCH_CACHE)} not supported",
        )


def test_request_without_a_needed_field_is_answered(rocketmq_shared: RocketProcess) -> None:
    with Remote(rocketmq_shared.port) as remote:
        answer = remote.call(RequestCode.GET_MAX_OFFSET, topic="t")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "GetMaxOffsetRequest.queueId" in (answer.remark or "")


def test_store_has_one_broker_at_a_time(rocketmq_shared: RocketProcess) -> None:
    with pytest.raises(NodeFailed) as refused:
        RocketProcess(rocketmq_shared.data_dir).start()
    assert refused.value.exit_code == 2
    assert f"{rocketmq_shared.data_dir}: in use by another broker; stop it" in refused.value.output


def test_port_that_is_taken_is_named(rocketmq_shared: RocketProcess, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed) as refused:
        RocketProcess(tmp_path / "store", port=rocketmq_shared.port).start()
    assert refused.value.exit_code == 2
    assert f"127.0.0.1:{rocketmq_shared.port}: Address already in use" in refused.value.output
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listenPort=x", "listenPort: 'x' is not a number between 1 and 65535"),
        (
            "deleteWhen=04;24",
            "deleteWhen: '04;24' is not an hour between 00 and 23, or several separated by semicolons",
        ),
        ("flushDiskType=NEVER", "flushDiskType: 'NEVER' is neither ASYNC_FLUSH nor SYNC_FLUSH"),
        ("messageDelayLevel=1w", "messageDelayLevel: '1w' '1w' is no delay"),
        ("brokerRole=SLAVE\nbrokerId=1", "a slave finds its master through a nameserver"),
        ("brokerIP1=0.0.0.0", "clients cannot connect to 0.0.0.0"),
        ("namesrvAddr=nowhere", "'nowhere' is no nameserver; write HOST:PORT"),
    ],
)
def test_configuration_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(text)
    options = ("--port", "--nameserver-port", "--grpc-port", "--remoting-port")
    ports = [word for option in options for word in (option, str(free_port()))]
    store = ["--store", str(tmp_path / "store")]
    result = CliRunner().invoke(app, ["start", "rocketmq", "--config", str(config), *ports, *store])
    assert result.exit_code == 2
    assert reason in result.output
    assert result.output.count("\n") == 1


def test_one_port_for_both_is_refused(tmp_path: Path) -> None:
    port = str(free_port())
    words = ["start", "rocketmq", "--port", port, "--nameserver-port", port, "--store", str(tmp_path / "store")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert f"127.0.0.1:{port}: Address already in use" in result.output


def test_help_has_examples() -> None:
    result = CliRunner().invoke(app, ["start", "rocketmq", "--help"])
    assert result.exit_code == 0
    assert "bmqctl start rocketmq --config broker.conf" in result.output
