"""A stranger on the host of a RocketMQ group, which says that it is a node: processes and their answers."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bmqctl.systems.node_process import HOST
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.replicating import NotifyBrokerRoleChangedRequest
from formats.rocketmq.remoting.raft import CODE, RAFT_HEADER, Install, RaftHeader, encode_message
from formats.rocketmq.remoting.replication import REPORT, SLAVE_HANDSHAKE, TRANSFER, HaState, Report, SlaveHandshake
from tests.integration.rocketmq_groups.group_rig import NODES, OFFSETS, Group
from tests.integration.rocketmq_groups.replication_rig import start
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S

# A group in which a broker that does not exist is master of a high epoch.
WORLD = (
    '{"groups":[{"cluster":"DefaultCluster","name":"broker-a","nextId":9,"masterEpoch":1000000,"membersEpoch":1000000,'
    '"members":[1],"master":1,"addresses":{"1":"127.0.0.1:1"},"checkCodes":{"1":"127.0.0.1:1;1"}}]}'
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path / "group")
    try:
        yield found
    finally:
        found.close()


def install(port: int, receiver: str) -> set[int]:
    """Tell a controller, as each of the others, that all was agreed to be another world; return the answers."""
    codes = set()
    for sender in ("n1", "n2", "n3"):
        kind, body = encode_message(Install(1_000_000, 1_000_000, 1_000_000, 1, WORLD))
        with Remote(port) as remote:
            header = RAFT_HEADER.write(RaftHeader("group1", sender, receiver, kind))
            codes.add(int(remote.call(CODE, body, **header).code))  # type: ignore[arg-type]
    return codes


def registration(address: str, state: int) -> tuple[bytes, dict[str, Any]]:
    table = {
        topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for topic in ("topic", "u")
    }
    version = {"counter": 1 << 30, "stateVersion": state, "timestamp": 5}
    wrapper = {"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": version}}
    body = fastjson.dumps(wrapper).encode()
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "haServerAddr": address,
        "brokerId": "0",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    return body, fields


def log_taken(port: int, broker_id: int) -> bytes:
    """Connect as a slave with an id, and return what the master sends before it closes the connection."""
    data = b""
    with closing(socket.create_connection((HOST, port), WAIT_S)) as sock:
        try:
            sock.sendall(SLAVE_HANDSHAKE.pack(SlaveHandshake(HaState.HANDSHAKE, 0, 0, broker_id)))
            while part := sock.recv(1 << 20):
                data += part
                if len(data) > 1_000:
                    break
        except (ConnectionError, TimeoutError):
            pass
    return data


def test_stranger_on_the_host_of_a_group_changes_nothing(group: Group) -> None:
    group.start()
    group.send_soon(b"before")
    before = group.view()["names"][0]
    for number in range(NODES):
        base = group.first + 10 * number
        controller, broker = base + OFFSETS["--controller-port"], base + OFFSETS["--port"]
        assert install(controller, f"n{number + 1}") == {ResponseCode.SYSTEM_ERROR}
        with Remote(controller) as remote:
            shrunk = SYNC_STATE_SET.write(SyncStateSet([1], 3))
            asked: dict[str, Any] = {"brokerName": "broker-a", "masterBrokerId": "1", "masterEpoch": "1"}
            code = remote.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, shrunk, **asked).code
            assert code in (ResponseCode.NO_PERMISSION, ResponseCode.CONTROLLER_NOT_LEADER)
        with Remote(broker) as remote:
            told = NotifyBrokerRoleChangedRequest("127.0.0.1:1", 1_000_000, 9, 9)
            body = SYNC_STATE_SET.write(SyncStateSet([9], 9))
            fields: dict[str, Any] = {**write_header(told)}
            remote.call(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, body, **fields)
        with Remote(base) as remote:
            body, fields = registration(f"{HOST}:6666", 1_000_000)
            assert remote.call(RequestCode.REGISTER_BROKER, body, **fields).code == ResponseCode.NO_PERMISSION
            fields["brokerAddr"] = before["masterAddress"]
            assert remote.call(RequestCode.UNREGISTER_BROKER, **fields).code == ResponseCode.NO_PERMISSION
        for broker_id in range(1, 5):
            # At most the challenge, and nothing of the log.
            assert len(log_taken(broker + 1, broker_id)) <= 40
    for body in (b"after", b"and later"):
        group.send_soon(body)
    after = group.view()["names"][0]
    assert {key: after[key] for key in ("masterAddress", "masterEpoch")} == {
        key: before[key] for key in ("masterAddress", "masterEpoch")
    }
    assert group.stop() == 0


def test_stranger_that_reports_what_it_was_sent_is_no_replica(tmp_path: Path) -> None:
    node = start(tmp_path, "sync-master", inSyncReplicas=2, slaveTimeout=1_000)
    ha_port = int(node.options[node.options.index("--ha-port") + 1])
    try:
        with closing(socket.create_connection((HOST, ha_port), WAIT_S)) as sock, Remote(node.port) as remote:
            stranger = threading.Thread(target=repeat_reports, args=(sock,))
            stranger.start()
            codes = [remote.send_message("topic", b"x").code for _ in range(2)]
            sock.shutdown(socket.SHUT_RDWR)
            stranger.join(WAIT_S)
        assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
    finally:
        node.close()


def repeat_reports(sock: socket.socket) -> None:
    """Report all that is sent as if it were stored."""
    data = b""
    try:
        sock.sendall(REPORT.pack(Report(0)))
        while part := sock.recv(1 << 20):
            data += part
            while len(data) >= TRANSFER.size:
                piece = TRANSFER.unpack(data[: TRANSFER.size])
                end = TRANSFER.size + piece.body_size
                if len(data) < end:
                    break
                data = data[end:]
                sock.sendall(REPORT.pack(Report(piece.offset + piece.body_size)))
    except OSError:
        pass
