"""Controllers as processes: killed and started again, several that agree, one beside a nameserver, and what is refused.

Brokers are played here; Apache's own are led by `scripts/mixed-rocketmq our-controllers`.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bmqctl.common.children import COMMAND
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, ControllerProcess, NodeFailed, RocketProcess
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, SYNC_STATE_SET, Replicas, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, next_frame
from formats.rocketmq.remoting.headers import replicating as headers
from formats.rocketmq.remoting.headers.codec import read_header
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually

NAME, CLUSTER = "group", "cluster"


class Controllers:
    """Some controllers of one group."""

    def __init__(self, folder: Path, size: int) -> None:
        ports = [free_port() for _ in range(size)]
        peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
        self.all = [
            ControllerProcess(folder / f"n{number}", self_id=f"n{number}", peers=peers, port=port)
            for number, port in enumerate(ports)
        ]
        for each in self.all:
            each.start()

    def leader(self) -> ControllerProcess | None:
        """The leader that all running controllers name."""
        told = set()
        for each in self.all:
            if each.is_running:
                with Remote(each.port) as remote:
                    answer = remote.call(RequestCode.CONTROLLER_GET_METADATA_INFO)
                    found = read_header(headers.GetControllerMetadataResponse, answer.ext_fields)
                told.add(found.controller_leader_id)
        return next((each for each in self.all if told == {each.self_id} and each.is_running), None)

    def ask(self, code: RequestCode, body: bytes = b"", **fields: object) -> Frame:
        """Ask the leader."""
        leader = eventually(self.leader)
        assert leader is not None
        with Remote(leader.port) as remote:
            return remote.call(code, body, **fields)

    def replicas(self) -> Replicas:
        body = self.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, f'["{NAME}"]'.encode()).body
        return BROKER_REPLICAS.read(body).replicas_info_table.get(NAME, Replicas())

    def close(self) -> None:
        for each in self.all:
            each.close()


class Played:
    """A broker that listens on an address of its own, and is connected to all controllers."""

    def __init__(self, stack: ExitStack, controllers: Controllers, number: int) -> None:
        self.number = number
        self.listener = stack.enter_context(socket.create_server((HOST, 0)))
        self.address = f"{HOST}:{self.listener.getsockname()[1]}"
        self.remotes = {
            each.self_id: stack.enter_context(Remote(each.port)) for each in controllers.all if each.is_running
        }
        self.controllers = controllers
        code = f"{self.address};{number}"
        fields: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": NAME}
        apply, register = RequestCode.CONTROLLER_APPLY_BROKER_ID, RequestCode.CONTROLLER_REGISTER_BROKER
        assert controllers.ask(apply, appliedBrokerId=number, registerCheckCode=code, **fields).code == 0
        assert controllers.ask(register, brokerId=number, brokerAddress=self.address, **fields).code == 0
        self.beat()

    def beat(self) -> None:
        for remote in self.remotes.values():
            answer = remote.call(
                RequestCode.BROKER_HEARTBEAT,
                clusterName=CLUSTER,
                brokerName=NAME,
                brokerAddr=self.address,
                brokerId=self.number,
                epoch=1,
                maxOffset=100,
                heartbeatTimeoutMills=60_000,
            )
            assert answer.code == 0

    def die(self) -> None:
        for remote in self.remotes.values():
            remote.sock.close()

    def elect(self) -> Frame:
        fields: dict[str, Any] = {
            "clusterName": CLUSTER,
            "brokerName": NAME,
            "brokerId": self.number,
            "designateElect": "false",
        }
        return self.controllers.ask(RequestCode.CONTROLLER_ELECT_MASTER, **fields)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, folder: Path, size: int) -> Controllers:
    controllers = Controllers(folder, size)
    stack.callback(controllers.close)
    return controllers


def test_answered_changes_survive_kills(tmp_path: Path, stack: ExitStack) -> None:
    controllers = started(stack, tmp_path, 1)
    brokers = [Played(stack, controllers, number) for number in (1, 2)]
    assert brokers[0].elect().code == 0
    alter: dict[str, Any] = {"brokerName": NAME, "masterBrokerId": 1, "masterEpoch": 1}
    for epoch in range(1, 6):
        members = [1, 2] if epoch % 2 else [1]
        body = SYNC_STATE_SET.write(SyncStateSet(members, epoch))
        answer = controllers.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, body, **alter)
        assert answer.code == 0
        controllers.all[0].kill()
        controllers.all[0].start()
        found = controllers.replicas()
        assert (found.master_broker_id, found.master_epoch, found.sync_state_set_epoch) == (1, 1, epoch + 1)
        assert [each.broker_id for each in found.in_sync_replicas] == members
        for broker in brokers:
            broker.remotes = {"n0": stack.enter_context(Remote(controllers.all[0].port))}
            broker.beat()


def test_group_of_three_goes_on_without_one(tmp_path: Path, stack: ExitStack) -> None:
    controllers = started(stack, tmp_path, 3)
    brokers = [Played(stack, controllers, number) for number in (1, 2)]
    assert brokers[0].elect().code == 0
    alter: dict[str, Any] = {"brokerName": NAME, "masterBrokerId": 1, "masterEpoch": 1}
    body = SYNC_STATE_SET.write(SyncStateSet([1, 2], 1))
    assert controllers.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, body, **alter).code == 0
    first = eventually(controllers.leader)
    assert first is not None
    follower = next(each for each in controllers.all if each is not first)
    with Remote(follower.port) as remote:
        answer = remote.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=NAME)
    assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER
    first.kill()
    for broker in brokers:
        del broker.remotes[first.self_id]
        broker.beat()
    second = eventually(controllers.leader)
    assert second is not None
    assert second is not first
    for broker in brokers:
        broker.beat()
    brokers[0].die()
    eventually(lambda: controllers.replicas().master_broker_id == 2)
    assert controllers.replicas().master_epoch == 2
    # All end, and the one that was away gets what it missed.
    first.start()
    for each in controllers.all:
        each.kill()
    for each in controllers.all:
        each.start()
    found = controllers.replicas()
    assert (found.master_broker_id, found.master_epoch) == (2, 2)


def test_brokers_are_told_of_their_master(tmp_path: Path, stack: ExitStack) -> None:
    controllers = started(stack, tmp_path, 1)
    broker = Played(stack, controllers, 1)
    assert broker.elect().code == 0
    broker.listener.settimeout(WAIT_S)
    sock, _ = broker.listener.accept()
    data = b""
    with sock:
        while (found := next_frame(memoryview(data), 0, len(data))) is None:
            data += sock.recv(1 << 16)
    frame = found[0]
    assert (frame.code, frame.is_one_way) == (RequestCode.NOTIFY_BROKER_ROLE_CHANGED, True)
    changed = headers.NotifyBrokerRoleChangedRequest(broker.address, 1, 1, 1)
    assert read_header(type(changed), frame.ext_fields) == changed
    assert SYNC_STATE_SET.read(frame.body) == SyncStateSet([1], 1)


def test_controller_beside_a_nameserver(tmp_path: Path) -> None:
    port = free_port()
    node = RocketProcess(tmp_path / "node", options=["--controller-port", str(port)])
    fields: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": NAME, "appliedBrokerId": 1}
    with node:
        for _ in range(2):
            with Remote(port) as remote:

                def leads(remote: Remote = remote) -> bool:
                    answer = remote.call(RequestCode.CONTROLLER_GET_METADATA_INFO)
                    header = read_header(headers.GetControllerMetadataResponse, answer.ext_fields)
                    assert header.peers == f"n0:{HOST}:{port};"
                    return header.controller_leader_address == f"{HOST}:{port}"

                eventually(leads)
                code: dict[str, Any] = {"registerCheckCode": f"{HOST}:10911;x"}
                assert remote.call(RequestCode.CONTROLLER_APPLY_BROKER_ID, **fields, **code).code == 0
                answer = remote.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, **fields)
                assert (answer.ext_fields or {})["nextBrokerId"] == "2"
            with Remote(node.nameserver_port) as nameserver:
                assert nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
                refused = nameserver.call(RequestCode.CONTROLLER_GET_METADATA_INFO)
                assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            node.restart(signal.SIGKILL)


UNFIT = {
    "an id of nobody": (["--peers", "n0-127.0.0.1:9;n1-127.0.0.1:8", "--self-id", "n7"], "n7"),
    "no id": (["--peers", "n0-127.0.0.1:9"], "controllerDLegerSelfId"),
    "an address that is none": (["--peers", "n0-127.0.0.1", "--self-id", "n0"], "n0-127.0.0.1"),
    "an address twice": (["--peers", "n0-127.0.0.1:9;n1-127.0.0.1:9", "--self-id", "n0"], "twice"),
    "a port and peers": (["--peers", "n0-127.0.0.1:9", "--self-id", "n0", "--port", "9"], "controllerDLegerPeers"),
    "no address for others": (["--host", "0.0.0.0"], "--address"),
}


@pytest.mark.parametrize(("options", "text"), UNFIT.values(), ids=UNFIT)
def test_unfit_configuration_is_refused(tmp_path: Path, options: list[str], text: str) -> None:
    words = [*COMMAND, "start", "rocketmq-controller", "--store", str(tmp_path / "store"), *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("bmqctl: ")
    assert done.stderr.count("\n") == 1
    assert text in done.stderr


def test_damaged_log_is_refused(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path / "n0")
    with controller, Remote(controller.port) as remote:
        eventually(lambda: remote.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName="x").code == 2008)
    path = tmp_path / "n0" / "controller" / "raft.log"
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    with pytest.raises(NodeFailed) as failed:
        controller.start()
    assert failed.value.exit_code == 1
    assert "raft.log: no block at offset 0" in failed.value.output


def test_one_controller_for_one_store(tmp_path: Path) -> None:
    with ControllerProcess(tmp_path / "n0"), pytest.raises(NodeFailed) as failed:
        ControllerProcess(tmp_path / "n0").start()
    assert failed.value.exit_code == 2
    assert "in use" in failed.value.output


def test_connections_of_a_balancer_begin_with_a_header(tmp_path: Path) -> None:
    (tmp_path / "controller.conf").write_text("proxyProtocolFrom=127.0.0.2\n")
    options = ("--config", str(tmp_path / "controller.conf"))
    with ControllerProcess(tmp_path / "store", options=options) as process, Remote(process.port) as remote:
        remote.sock.close()
        remote.sock = socket.create_connection((HOST, process.port), WAIT_S, ("127.0.0.2", 0))
        remote.sock.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 9878\r\n")
        assert remote.call(RequestCode.CONTROLLER_GET_METADATA_INFO).code == ResponseCode.SUCCESS
