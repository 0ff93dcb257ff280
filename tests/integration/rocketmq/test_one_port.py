"""The port that is nameserver and broker at once, by itself and beside the node's other ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeFailed, RocketProcess
from broker.rocketmq.assembly.remoting import listen_for_remoting
from broker.rocketmq.config import node as module
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.replication.options import Role
from broker.shell.loop.server import ListenError
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.default_port import with_default
from tests.rigs.grpc_topics import make_topics
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually

ACCESS = 'authenticationEnabled=true\ninitAuthenticationUser={"username":"root","password":"hush-root"}\n'


class Unasked(RocketProcess):
    """A node without a configuration of that port."""

    def _words(self) -> list[str]:
        words = super()._words()
        at = words.index("--remoting-port")
        return words[:at] + words[at + 2 :]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that is taken, and the default one."""
    with closing(socket.create_server((HOST, free_port()))) as sock:
        port = sock.getsockname()[1]
        monkeypatch.setattr(module, "REMOTING_PORT", port)
        yield port


def on_port(node: RocketProcess, port: int) -> RocketProcess:
    """Have a node use another port, or none."""
    node.remoting_port = port
    return node


def addresses(remote: Remote) -> list[dict[int, str]]:
    """Return where the brokers of a topic are."""
    answer = remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Normal")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [data.broker_addrs for data in TOPIC_ROUTE.read(answer.body).broker_datas]


def pull(remote: Remote, queue_id: int, offset: int = 0) -> ResponseCode:
    answer = remote.call(
        RequestCode.PULL_MESSAGE,
        consumerGroup="consumers",
        topic="Normal",
        queueId=queue_id,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription="*",
        subVersion=0,
        expressionType="TAG",
    )
    return ResponseCode(answer.code)


def test_a_client_needs_no_other_port(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        where = f"{HOST}:{node.remoting_port}"
        assert f"{where} (remoting)" in node.ready_line
        make_topics(node.port)
        with (
            closing(socket.create_connection((HOST, node.remoting_port), WAIT_S)) as sock,
            suppress(ConnectionError),
        ):
            # Only a client that speaks neither protocol is disconnected.
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
            while sock.recv(65_536):
                pass
        remote, usual = Remote(node.remoting_port), Remote(node.nameserver_port)
        assert addresses(remote) == [{0: where}]
        assert addresses(usual) == [{0: node.address}]
        assert remote.send_message("Normal", b"one").code == ResponseCode.SUCCESS
        assert pull(remote, 0) == ResponseCode.SUCCESS
        # It is the same broker.
        broker = Remote(node.port)
        assert pull(broker, 0) == ResponseCode.SUCCESS
        assert broker.send_message("Normal", b"two").code == ResponseCode.SUCCESS
        assert pull(remote, 0, 1) == ResponseCode.SUCCESS
        for each in (remote, usual, broker):
            each.sock.close()
        assert "fault of this broker" not in node.output


def test_its_requests_are_checked_as_the_others(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(ACCESS)
    with RocketProcess(tmp_path / "store", config_file=file, grpc_port=0) as node:
        remote = Remote(node.remoting_port)
        assert remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102").code == ResponseCode.NO_PERMISSION
        assert remote.send_message("TBW102", b"one").code == ResponseCode.NO_PERMISSION
        remote.sock.close()


def test_clients_are_told_the_address_that_is_set_for_them(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store", grpc_port=0, options=["--address", "127.0.0.2"]) as node:
        make_topics(node.port)
        remote = Remote(node.remoting_port)
        assert addresses(remote) == [{0: f"127.0.0.2:{node.remoting_port}"}]
        remote.sock.close()


def test_the_default_is_that_of_the_original() -> None:
    assert RocketConfig().remoting_listen_port == 8080
    assert RocketConfig(remoting_port=9080).remoting_listen_port == 9080
    assert RocketConfig(remoting_port=0).remoting_listen_port is None


def test_a_slave_has_it_where_it_is_told_to() -> None:
    slave = RocketConfig(nameservers=("127.0.0.1:1",)).with_role(Role.SLAVE, 1)
    assert slave.remoting_listen_port is None
    assert slave.changed(remoting_port=9080).remoting_listen_port == 9080


def test_the_file_names_a_port_or_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    for text, port in (("9080", 9080), ("0", None)):
        file.write_text(f"remotingListenPort={text}\n")
        assert load_rocketmq_config(file).remoting_listen_port == port
    file.write_text("remotingListenPort=65536\n")
    with pytest.raises(PropertyError, match="remotingListenPort"):
        load_rocketmq_config(file)


def test_a_node_does_without_the_default_port_if_it_is_taken(taken: int) -> None:
    sock, reason = listen_for_remoting(RocketConfig())
    assert sock is None
    assert reason == (
        f"127.0.0.1:{taken}: Address already in use; stop the program that uses it, or choose another "
        "--remoting-port, or --no-remoting"
    )


def test_a_port_that_was_asked_for_and_is_taken_is_refused(taken: int, tmp_path: Path) -> None:
    with pytest.raises(ListenError, match=f"127.0.0.1:{taken}: .* another --remoting-port$"):
        listen_for_remoting(RocketConfig(remoting_port=taken))
    with pytest.raises(NodeFailed, match=f"127.0.0.1:{taken}: .* another --remoting-port"):
        on_port(RocketProcess(tmp_path / "other"), taken).start()


def test_the_default_port_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(module, "REMOTING_PORT", port)
    sock, reason = listen_for_remoting(RocketConfig())
    assert sock is not None
    with closing(sock):
        assert (sock.getsockname(), reason) == ((HOST, port), "")


def test_a_node_that_is_told_nothing_starts_whoever_has_the_port(tmp_path: Path, taken: int) -> None:
    with Unasked(tmp_path / "store", command=with_default("REMOTING_PORT", taken)) as node:
        assert "(remoting)" not in node.ready_line
        assert f"nameserver and broker at once: 127.0.0.1:{taken}: Address already in use" in node.output


def test_a_node_without_it_does_not_listen(tmp_path: Path) -> None:
    with on_port(RocketProcess(tmp_path / "store"), 0) as node:
        assert "(remoting)" not in node.ready_line


def test_a_port_and_none_at_once_are_refused() -> None:
    result = CliRunner().invoke(app, ["start", "rocketmq", "--remoting-port", "9080", "--no-remoting"])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "--no-remoting" in result.output


def test_a_connection_that_ends_takes_its_clients_along(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        remote, other = Remote(node.remoting_port), Remote(node.port)
        body = b'{"clientID":"one","producerDataSet":[{"groupName":"producers"}],"consumerDataSet":[]}'
        assert remote.call(RequestCode.HEART_BEAT, body).code == ResponseCode.SUCCESS
        assert b"one" in bytes(other.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="producers").body)
        remote.sock.close()

        def producers() -> bytes:
            return bytes(other.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="producers").body)

        eventually(lambda: b"one" not in producers())
        other.sock.close()
