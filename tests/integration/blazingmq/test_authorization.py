"""A node whose configuration says who may do what, and a proxy below it that says so to its own clients."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.client import admin
from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.testing import NodeProcess, free_port
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AdminCommand,
    AdminCommandResponse,
    AuthenticationMessage,
    AuthenticationRequest,
    BrokerResponse,
    ClientType,
    ControlMessage,
    NegotiationMessage,
    OpenQueueResponse,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import build_schema_event
from tests.rigs.config_files import spoil, write_config, write_proxy_config
from tests.rigs.raw import READ, WRITE, Raw, identity, open_request
from tests.waiting import WAIT_S

USERS = ("ops", "shop", "reader")
AUTHENTICATION = {
    "authenticators": [
        {"name": "BasicAuthenticator", "settings": [{"key": user, "value": {"stringVal": "x"}} for user in USERS]},
        {"name": "AnonAuthenticator"},
    ],
    "anonymousCredential": {"credential": {"mechanism": "ANONYMOUS", "identity": ""}},
}
AUTHORIZATION = {
    "rules": [
        {"principals": ["BASIC_USER-ops"], "actions": ["administer"]},
        {"principals": ["BASIC_USER-shop"], "actions": ["read", "write"], "domains": ["shop.*"]},
        {"principals": ["BASIC_USER-reader"], "mechanisms": ["BASIC"], "actions": ["read"]},
    ]
}
ORDERS = "bmq://shop.orders/q"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("authorized")
    config = write_config(folder / "etc")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=AUTHENTICATION)
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authorization", value=AUTHORIZATION)
    with NodeProcess(folder / "store", config_dir=config) as running:
        yield running


class User(Raw):
    """A connection of somebody who has authenticated; `answer` is what the node says to its identity."""

    def __init__(self, node: NodeProcess, user: str | None, client_type: ClientType = ClientType.TCPCLIENT) -> None:
        super().__init__(node, identified=False)
        if user is not None:
            request = AuthenticationRequest(mechanism="BASIC", data=f"{user}:x".encode())
            self.send(build_schema_event(ber.encode(AuthenticationMessage(choice=request)), EventType.AUTHENTICATION))
            assert self.event()[0] is EventType.AUTHENTICATION
        self.send(identity(client_type))
        answer = ber.decode(NegotiationMessage, self.event()[1]).choice
        assert isinstance(answer, BrokerResponse)
        self.answer = answer.result

    def ask(self, request: bytes) -> object:
        self.send(request)
        return ber.decode(ControlMessage, self.event()[1]).choice


REFUSED = Status(category=StatusCategory.REFUSED, code=-1, message="Connection not authorized")


@pytest.mark.parametrize(
    ("user", "client_type", "may"),
    [
        (None, ClientType.TCPCLIENT, False),
        (None, ClientType.TCPADMIN, False),
        (None, ClientType.TCPBROKER, False),
        ("ops", ClientType.TCPADMIN, True),
        ("ops", ClientType.TCPCLIENT, False),
        ("shop", ClientType.TCPCLIENT, True),
        ("shop", ClientType.TCPADMIN, False),
        ("reader", ClientType.TCPBROKER, False),
    ],
)
def test_users_may_connect_in_their_roles(
    node: NodeProcess, user: str | None, client_type: ClientType, may: bool
) -> None:
    with User(node, user, client_type) as raw:
        if may:
            assert raw.answer.category is StatusCategory.SUCCESS
        else:
            assert raw.answer == REFUSED
            raw.rest()


def test_users_may_read_and_write_their_queues(node: NodeProcess) -> None:
    with User(node, "shop") as shop, User(node, "reader") as reader:
        assert isinstance(shop.ask(open_request(ORDERS, 0, READ | WRITE)), OpenQueueResponse)
        assert isinstance(reader.ask(open_request(ORDERS, 0, READ)), OpenQueueResponse)
        assert reader.ask(open_request(ORDERS, 1, WRITE)) == Status(
            category=StatusCategory.REFUSED, code=-1, message=f"Not authorized to write to queue '{ORDERS}'"
        )
        for uri in ("bmq://bmq.test.mem.priority/q", "bmq://there.is.none/q"):
            assert shop.ask(open_request(uri, 1, READ)) == Status(
                category=StatusCategory.REFUSED, code=-1, message=f"Not authorized to read from queue '{uri}'"
            )


def bmqctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from bmqctl.app import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=os.environ | {"BMQCTL_AUTHN_DATA": "ops:x"},
        check=False,
    )


def test_the_command_line_authenticates(node: NodeProcess) -> None:
    where = ("--broker", node.uri)
    assert "not authorized" in bmqctl("admin", *where, "CLUSTERS", "LIST").stderr
    listed = bmqctl("admin", *where, "--authn-mechanism", "BASIC", "CLUSTERS", "LIST")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "[LOCAL ] mine:" in listed.stdout
    explained = bmqctl("cluster", "explain", *where, "--authn-mechanism", "basic")
    assert (explained.returncode, explained.stdout) == (0, "No problems, according to 1 of 1 nodes.\n")
    wrong = bmqctl("admin", *where, "--authn-mechanism", "BASIC", "--authn-data", "ops:TOPSECRET", "CLUSTERS", "LIST")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("bmqctl admin: the broker refused the credentials: ")
    assert "TOPSECRET" not in wrong.stderr


def test_an_administrator_authenticates_again_before_its_time_is_up(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later:
        """A clock that is ten minutes ahead, which is how long BASIC stands."""

        @staticmethod
        def monotonic_ns() -> int:
            return time.monotonic_ns() + 600 * 1_000_000_000

    with AdminClient("127.0.0.1", node.port, credentials=Credentials("BASIC", b"ops:x")) as ops:
        said = node.log.count("authenticated as 'BASIC_USER-ops'")
        ops.send("CLUSTERS LIST")
        assert node.log.count("authenticated as 'BASIC_USER-ops'") == said
        monkeypatch.setattr(admin, "time", Later)
        assert "mine" in ops.send("CLUSTERS LIST")
        assert node.log.count("authenticated as 'BASIC_USER-ops'") == said + 1


def test_users_who_may_administer(node: NodeProcess) -> None:
    with pytest.raises(AdminLost, match="the broker refused: Connection not authorized"):
        AdminClient("127.0.0.1", node.port, 10.0)
    with User(node, "ops", ClientType.TCPADMIN) as ops:
        command = build_schema_event(
            ber.encode(ControlMessage(r_id=1, choice=AdminCommand(command="BROKERCONFIG DUMP")))
        )
        answer = ops.ask(command)
        assert isinstance(answer, AdminCommandResponse)
        assert '"BASIC_USER-shop"' in answer.text
    # A process that may write to the pipe may do everything.
    fd = os.open(node.data_dir / "bmqbrkr.ctl", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"CMD CLUSTERS LIST\n")
    os.close(fd)
    node.wait_for("Command 'CMD CLUSTERS LIST' processed successfully")


def test_the_broker_that_a_client_is_connected_to_decides(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    above = write_config(tmp_path / "node-etc")
    spoil(above, "bmqbrkrcfg.json", "appConfig", "authorization", value={"rules": [{"actions": ["broker"]}]})
    below = write_proxy_config(tmp_path / "proxy-etc", [ports[0]])
    spoil(below, "bmqbrkrcfg.json", "appConfig", "authorization", value={"rules": [{"actions": ["read"]}]})
    with (
        NodeProcess(tmp_path / "node", config_dir=above, port=ports[0]) as node,
        NodeProcess(tmp_path / "proxy", config_dir=below, port=ports[1]) as proxy,
    ):
        proxy.wait_for("is available")
        with User(node, None) as direct:
            assert direct.answer == REFUSED
        with User(proxy, None) as client:
            assert isinstance(client.ask(open_request(ORDERS, 0, READ)), OpenQueueResponse)
            assert client.ask(open_request(ORDERS, 1, WRITE)) == Status(
                category=StatusCategory.REFUSED, code=-1, message=f"Not authorized to write to queue '{ORDERS}'"
            )
