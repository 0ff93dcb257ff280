"""`bmqctl start rocketmq-proxy` as a process, before a node of ours that may die."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeFailed, RocketProcess, RocketProxyProcess
from broker.rocketmq.assembly import proxy as module
from broker.rocketmq.assembly.proxy import ProxyConfig, listen_for_remoting
from broker.shell.loop.server import ListenError
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.console_pages import Pages
from tests.rigs.grpc_calls import Caller, ask_route, connect
from tests.rigs.grpc_topics import make_topics
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path / "store", grpc_port=0) as process:
        make_topics(process.port)
        yield process


@pytest.fixture
def proxy(node: RocketProcess, tmp_path: Path) -> Iterator[RocketProxyProcess]:
    nobody = f"{HOST}:{free_port()}"
    with RocketProxyProcess(tmp_path / "proxy", [nobody, node.nameserver]) as process:
        yield process
        assert "fault of this broker" not in process.output


def send(caller: Caller, number: int) -> int:
    message = make("Message", body=str(number).encode(), topic=make("Resource", name="Normal"))
    message.system_properties.message_id = f"ID-{number}"
    message.system_properties.message_type = message.system_properties.body_encoding = 1
    (answer,) = caller.call("SendMessage", make("SendMessageRequest", messages=[message]))
    return int(answer.status.code)


def receive(caller: Caller, wait_ms: int = 5_000) -> tuple[int, list[Message]]:
    """The code of the first answer, and the messages."""
    request = make("ReceiveMessageRequest", batch_size=32)
    request.group.name, request.message_queue.topic.name = "consumers", "Normal"
    request.filter_expression.type, request.filter_expression.expression = 1, "*"
    request.long_polling_timeout.CopyFrom(duration_of_ms(wait_ms))
    request.invisible_duration.CopyFrom(duration_of_ms(30_000))
    answers = caller.call("ReceiveMessage", request)
    return answers[0].status.code, [each.message for each in answers if each.WhichOneof("content") == "message"]


def acknowledge(caller: Caller, messages: list[Message]) -> int:
    request = make("AckMessageRequest")
    request.group.name, request.topic.name = "consumers", "Normal"
    for each in messages:
        request.entries.add(message_id="", receipt_handle=each.system_properties.receipt_handle)
    (answer,) = caller.call("AckMessage", request)
    return int(answer.status.code)


def test_stored_messages_survive_the_broker_and_the_proxy_finds_them_again(
    node: RocketProcess, proxy: RocketProxyProcess
) -> None:
    with closing(connect(proxy.port)) as sock:
        caller = Caller(sock)
        assert [send(caller, number) for number in range(10)] == [Code.OK] * 10
        node.kill()
        assert send(caller, 10) == Code.INTERNAL_SERVER_ERROR
        assert receive(caller)[0] == Code.INTERNAL_SERVER_ERROR
        node.start()
        eventually(lambda: send(caller, 10) == Code.OK)
        bodies: set[bytes] = set()

        def have_come() -> bool:
            _, messages = receive(caller)
            bodies.update(each.body for each in messages)
            if messages:
                assert acknowledge(caller, messages) == Code.OK
            return len(bodies) == 11

        eventually(have_come)
        assert bodies == {str(number).encode() for number in range(11)}


def test_a_proxy_that_is_started_anew_knows_the_handles_of_the_one_before(
    node: RocketProcess, proxy: RocketProxyProcess
) -> None:
    with closing(connect(proxy.port)) as sock:
        caller = Caller(sock)
        assert send(caller, 1) == Code.OK
        messages: list[Message] = []
        while not messages:
            _, messages = receive(caller)
    proxy.kill()
    proxy.start()
    with closing(connect(proxy.port)) as sock:
        caller = Caller(sock)
        assert acknowledge(caller, messages) == Code.OK


def test_one_port_takes_plain_connections_and_tls(node: RocketProcess, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    console_port = free_port()
    options = ["--tls-certificate", str(chain), "--tls-key", str(key), "--console-port", str(console_port)]
    with RocketProxyProcess(tmp_path / "proxy", [node.nameserver], options=options) as proxy:
        for trusted in (None, authority, None, authority):
            with closing(connect(proxy.port, trusted)) as sock:
                assert ask_route(sock) == Code.OK
        # Its console shows the cluster of its nameservers.
        pages = Pages(console_port)
        assert pages.begin()["place"] == node.nameserver
        assert "Normal" in [row[0] for row in pages.look()["rows"]]


def test_garbage_at_the_port_is_closed(proxy: RocketProxyProcess) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n" * 3, b"\x16garbage" * 9, b"\x00\x00\x00\x10" * 100, bytes(range(256)) * 64):
        with socket.create_connection((HOST, proxy.port), WAIT_S) as sock, suppress(ConnectionError):
            sock.sendall(data)
            while sock.recv(65_536):
                pass
    assert "invalid HTTP/2" in proxy.log
    with closing(connect(proxy.port)) as sock:
        assert ask_route(sock) == Code.OK


def test_a_proxy_starts_without_nameservers_and_waits_for_them(tmp_path: Path) -> None:
    nameserver_port = free_port()
    with RocketProxyProcess(tmp_path / "proxy", [f"{HOST}:{nameserver_port}"]) as proxy:
        with closing(connect(proxy.port)) as sock:
            assert ask_route(sock) == Code.INTERNAL_SERVER_ERROR
        assert f"{HOST}:{nameserver_port} cannot be reached" in proxy.log
        with RocketProcess(tmp_path / "store", nameserver_port=nameserver_port, grpc_port=0) as node:
            make_topics(node.port)

            def is_routed() -> bool:
                with closing(connect(proxy.port)) as sock:
                    return ask_route(sock) == Code.OK

            eventually(is_routed)


def test_remoting_clients_take_it_for_the_nameserver_and_every_broker(proxy: RocketProxyProcess) -> None:
    assert f"{proxy.nameserver} (remoting)" in proxy.ready_line
    remote = Remote(proxy.remoting_port)
    route = TOPIC_ROUTE.read(remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Normal").body)
    (broker,) = route.broker_datas
    assert broker.broker_addrs == {0: proxy.nameserver}
    fields = {"a": "p", "b": "Normal", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
    answer = remote.call(RequestCode.SEND_MESSAGE_V2, b"remoting", n=broker.broker_name, **fields)
    assert answer.code == ResponseCode.SUCCESS
    # Only a client that speaks neither protocol is disconnected.
    with socket.create_connection((HOST, proxy.remoting_port), WAIT_S) as sock, suppress(ConnectionError):
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        while sock.recv(65_536):
            pass
    with closing(connect(proxy.port)) as sock:
        bodies: list[bytes] = []
        while not bodies:
            bodies = [each.body for each in receive(Caller(sock, "other"))[1]]
    assert bodies == [b"remoting"]
    remote.sock.close()


def test_a_proxy_does_without_the_usual_port_for_remoting_if_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server((HOST, free_port()))) as taken:
        monkeypatch.setattr(module, "REMOTING_PORT", taken.getsockname()[1])
        config = ProxyConfig(("127.0.0.1:1",), data_dir=tmp_path)
        sock, reason = listen_for_remoting(config)
        assert sock is None
        assert reason.endswith("choose another --remoting-port, or --no-remoting")
        with pytest.raises(ListenError, match="--remoting-port"):
            listen_for_remoting(replace(config, remoting_port=taken.getsockname()[1]))
        assert listen_for_remoting(replace(config, remoting_port=0)) == (None, "")


def test_a_proxy_that_stops_says_farewell(proxy: RocketProxyProcess) -> None:
    with closing(connect(proxy.port)) as sock:
        assert ask_route(sock) == Code.OK
        proxy.stop()
        rest = b""
        while data := sock.recv(65_536):
            rest += data
    # The type of a GOAWAY frame, and that it is of no stream.
    assert b"\x07\x00\x00\x00\x00\x00" in rest


def test_a_port_that_is_taken_is_refused(proxy: RocketProxyProcess, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match="another --grpc-port"):
        RocketProxyProcess(tmp_path / "other", proxy.nameservers, port=proxy.port).start()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--nameserver", "nowhere"], "'nowhere' is no nameserver; write HOST:PORT"),
        (["--nameserver", ";"], "a proxy needs a nameserver"),
        (["--nameserver", "127.0.0.1:1", "--host", "0.0.0.0"], "--address, or do not serve"),
        (["--nameserver", "127.0.0.1:1", "--remoting-port", "1", "--no-remoting"], "contradict"),
        (["--nameserver", "127.0.0.1:1", "--tls-certificate", "none.pem"], "--tls-certificate and --tls-key"),
        (["--nameserver", "127.0.0.1:1", "--tls-certificate", "none.pem", "--tls-key", "none.pem"], "none.pem"),
    ],
)
def test_options_that_cannot_be_used_are_one_line(words: list[str], reason: str, tmp_path: Path) -> None:
    where = ["--grpc-port", str(free_port()), "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(app, ["start", "rocketmq-proxy", *where, *words])
    assert result.exit_code == 2
    assert reason in result.output
    assert result.output.count("\n") == 1


def test_help_has_examples() -> None:
    result = CliRunner().invoke(app, ["start", "rocketmq-proxy", "--help"])
    assert result.exit_code == 0
    assert "bmqctl start rocketmq-proxy --nameserver 127.0.0.1:9876" in result.output
