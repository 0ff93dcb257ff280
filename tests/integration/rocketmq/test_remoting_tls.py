"""TLS of the ports for the remoting protocol, by mode, and of connections between nodes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trio

from bmqctl.client.rocketmq import connect
from bmqctl.systems.node_process import HOST, NodeFailed, RocketProcess, RocketProxyProcess
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, encode_frame
from tests.integration.rocketmq.authority import Authority
from tests.integration.rocketmq_groups.replication_rig import start
from tests.waiting import WAIT_S, eventually

Trust = ssl.SSLContext | None
ALIKE = b"kept secret"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


Begin = Callable[..., RocketProcess]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start nodes with properties, and stop them."""
    started: list[RocketProcess] = []

    def run(**properties: object) -> RocketProcess:
        config = tmp_path / "broker.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        node = RocketProcess(tmp_path / "store", config_file=config)
        node.start()
        started.append(node)
        return node

    yield run
    for node in started:
        node.stop()


def exchange(nameserver: str, tls: Trust, topic: str = "secrets") -> bytes:
    """Post a message and consume one, through the nameserver and the broker; its payload."""

    async def run() -> bytes:
        with trio.fail_after(WAIT_S):
            async with connect(f"rocketmq://{nameserver}", tls=tls, timeout_s=10, retry_s=20) as session:
                producer = await session.producer(topic)
                await producer.post(ALIKE)
                consumer = await session.consume(topic, "readers", from_start=True)
                (message, *_) = await consumer.receive()
                message.confirm()
                return message.payload

    return trio.run(run)


def refused(port: int, tls: Trust) -> bool:
    """Return whether a connection is closed at its handshake or its first request, without an answer."""
    request = encode_frame(Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext_fields={"topic": "secrets"}))
    with socket.create_connection((HOST, port), WAIT_S) as sock:
        try:
            with closing(sock if tls is None else tls.wrap_socket(sock, server_hostname=HOST)) as stream:
                stream.sendall(request)
                return not stream.recv(1)
        except (ssl.SSLError, ConnectionError):
            return True


def unverified() -> ssl.SSLContext:
    """A context that trusts everybody, as the original's clients by default."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_ports_take_plain_connections_and_tls(begin: Begin, authority: Authority) -> None:
    node = begin(**authority.certificate)
    for tls in (None, authority.client()):
        assert exchange(node.nameserver, tls) == ALIKE
        # The port that is nameserver and broker at once.
        assert exchange(f"{HOST}:{node.remoting_port}", tls) == ALIKE


def test_a_node_without_a_certificate_has_one_of_its_own(begin: Begin, authority: Authority) -> None:
    node = begin()
    assert exchange(node.nameserver, unverified()) == ALIKE
    assert refused(node.nameserver_port, authority.client())


def test_an_enforcing_node_takes_no_plain_connections(begin: Begin, authority: Authority) -> None:
    node = begin(tlsServerMode="enforcing", **authority.certificate)
    assert exchange(node.nameserver, authority.client()) == ALIKE
    assert refused(node.nameserver_port, None)
    assert exchange(node.nameserver, authority.client()) == ALIKE


def test_a_node_without_tls_takes_plain_connections_only(begin: Begin, authority: Authority) -> None:
    node = begin(tlsServerMode="disabled", **authority.certificate)
    assert exchange(node.nameserver, None) == ALIKE
    assert refused(node.nameserver_port, authority.client())


def test_clients_show_certificates_where_they_have_to(begin: Begin, authority: Authority) -> None:
    node = begin(
        tlsServerMode="enforcing",
        tlsServerNeedClientAuth="require",
        tlsServerTrustCertPath=authority.trust,
        **authority.certificate,
    )
    assert exchange(node.nameserver, authority.client(is_known=True)) == ALIKE
    assert refused(node.nameserver_port, authority.client())


def test_a_node_shows_its_new_certificate_without_a_restart(begin: Begin, authority: Authority) -> None:
    node = begin(**authority.certificate)

    def shown() -> str:
        return ssl.get_server_certificate((HOST, node.nameserver_port), timeout=WAIT_S)

    before = shown()
    authority.issue()
    eventually(lambda: shown() != before)
    assert exchange(node.nameserver, authority.client()) == ALIKE


def test_a_slave_copies_over_tls_what_an_enforcing_master_has(tmp_path: Path, authority: Authority) -> None:
    given = {
        "tlsServerMode": "enforcing",
        "tlsClientTrustCertPath": authority.trust,
        "tlsServerNeedClientAuth": "require",
        "tlsServerTrustCertPath": authority.trust,
        **authority.certificate,
    }
    with ExitStack() as stack:
        master = start(tmp_path / "master", "sync-master", inSyncReplicas=2, **given)
        stack.callback(master.stop)
        slave = start(tmp_path / "slave", "slave", "--broker-id", "1", namesrvAddr=master.nameserver, **given)
        stack.callback(slave.stop)
        log = tmp_path / "slave" / "store" / "commitlog" / f"{0:020d}"
        # A send is answered when the slave has the message.
        assert exchange(master.nameserver, authority.client(is_known=True)) == ALIKE
        assert ALIKE in log.read_bytes()


def test_a_proxy_of_an_enforcing_node_enforces_tls(tmp_path: Path, begin: Begin, authority: Authority) -> None:
    node = begin(tlsServerMode="enforcing", **authority.certificate)
    files = ["--tls-certificate", str(authority.chain), "--tls-key", str(authority.key)]
    options = ["--tls-mode", "enforcing", "--tls-trust", str(authority.trust), *files]
    with RocketProxyProcess(tmp_path / "proxy", [node.nameserver], options=options) as proxy:
        assert exchange(f"{HOST}:{proxy.remoting_port}", authority.client()) == ALIKE
        assert refused(proxy.remoting_port, None)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"tlsServerMode": "sometimes"}, "tlsServerMode: 'sometimes' is none of disabled, permissive, enforcing"),
        ({"tlsServerMode": "enforcing", "tlsTestModeEnable": "false"}, "set tlsCertPath and tlsKeyPath"),
        ({"tlsServerNeedClientAuth": "require", "tlsServerMode": "enforcing"}, "tlsServerTrustCertPath"),
        ({"tlsServerNeedClientAuth": "require"}, "set tlsServerMode=enforcing"),
        ({"tlsClientTrustCertPath": "{here}"}, "set tlsEnable=true"),
        ({"tlsEnable": "true", "tlsClientTrustCertPath": "/none.pem"}, "/none.pem (tlsClientTrustCertPath): No such"),
        ({"tlsServerTrustCertPath": "{here}"}, "no certificates in PEM"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, begin: Begin, properties: dict[str, str], words: str
) -> None:
    (tmp_path / "empty.pem").write_text("")
    given = {name: value.format(here=tmp_path / "empty.pem") for name, value in properties.items()}
    with pytest.raises(NodeFailed) as failed:
        begin(**given)
    assert words in str(failed.value)
