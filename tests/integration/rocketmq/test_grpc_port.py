"""The port for gRPC: its default, another one, none, and one that is taken."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeFailed, RocketProcess
from broker.rocketmq.assembly.grpc import listen_for_grpc
from broker.rocketmq.config import node as module
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.replication.options import Role
from broker.shell.loop.server import ListenError
from tests.rigs.default_port import with_default


class Unasked(RocketProcess):
    """A node without a configured port for gRPC."""

    def _words(self) -> list[str]:
        words = super()._words()
        at = words.index("--grpc-port")
        return words[:at] + words[at + 2 :]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that is taken, and the default one."""
    with closing(socket.create_server((HOST, free_port()))) as sock:
        port = sock.getsockname()[1]
        monkeypatch.setattr(module, "GRPC_PORT", port)
        yield port


def test_the_default_is_that_of_the_original() -> None:
    assert RocketConfig().grpc_listen_port == 8081
    assert RocketConfig(grpc_port=9081).grpc_listen_port == 9081
    assert RocketConfig(grpc_port=0).grpc_listen_port is None


def test_a_slave_serves_grpc_where_it_is_told_to() -> None:
    slave = RocketConfig(nameservers=("127.0.0.1:1",)).with_role(Role.SLAVE, 1)
    assert slave.grpc_listen_port is None
    assert slave.changed(grpc_port=9081).grpc_listen_port == 9081


def test_the_file_names_a_port_or_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    for text, port in (("9081", 9081), ("0", None)):
        file.write_text(f"grpcServerPort={text}\n")
        assert load_rocketmq_config(file).grpc_listen_port == port
    file.write_text("grpcServerPort=65536\n")
    with pytest.raises(PropertyError, match="grpcServerPort"):
        load_rocketmq_config(file)


def test_a_node_does_without_the_default_port_if_it_is_taken(taken: int) -> None:
    sock, reason = listen_for_grpc(RocketConfig())
    assert sock is None
    assert reason == (
        f"127.0.0.1:{taken}: Address already in use; stop the program that uses it, or choose another --grpc-port, "
        "or --no-grpc"
    )


def test_a_port_that_was_asked_for_and_is_taken_is_refused(taken: int) -> None:
    with pytest.raises(ListenError, match=f"127.0.0.1:{taken}: .* another --grpc-port$"):
        listen_for_grpc(RocketConfig(grpc_port=taken))


def test_the_default_port_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(module, "GRPC_PORT", port)
    sock, reason = listen_for_grpc(RocketConfig())
    assert sock is not None
    with closing(sock):
        assert (sock.getsockname(), reason) == ((HOST, port), "")


def test_a_node_that_is_told_nothing_starts_whoever_has_the_port(tmp_path: Path, taken: int) -> None:
    with Unasked(tmp_path / "store", command=with_default("GRPC_PORT", taken)) as node:
        assert "(gRPC)" not in node.ready_line
        assert f"gRPC is not served: 127.0.0.1:{taken}: Address already in use" in node.output
        assert "--grpc-port" in node.output


def test_a_node_says_where_it_serves_grpc_or_not(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store") as node:
        assert f"{node.endpoint} (gRPC)" in node.ready_line
        with pytest.raises(NodeFailed, match=f"{node.endpoint}: .* --grpc-port"):
            RocketProcess(tmp_path / "other", grpc_port=node.grpc_port).start()
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        assert "(gRPC)" not in node.ready_line


def test_a_port_and_none_at_once_are_refused() -> None:
    result = CliRunner().invoke(app, ["start", "rocketmq", "--grpc-port", "9081", "--no-grpc"])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "--no-grpc" in result.output


def test_the_error_of_a_taken_port_names_its_option(tmp_path: Path) -> None:
    with closing(socket.create_server((HOST, free_port()))) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(NodeFailed, match="another --nameserver-port"):
            RocketProcess(tmp_path / "store", nameserver_port=port).start()
