"""Real nodes that listen for TLS only and let nobody be anonymous, a proxy in front of them, and strangers."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blazingmq
import pytest
import trio
import trustme

from bmqctl.client.session import Session, SessionOptions
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    ElectorMessage,
    LeaderHeartbeat,
)
from formats.bmq.wire.event import build_schema_event
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.config_files import spoil
from tests.rigs.official import Client, confirm, queue_name
from tests.rigs.raw import node_identity
from tests.waiting import WAIT_S

STRONG = "bmq.test.persistent.priority.sc"
USERS = {name: f"secret-of-{name}" for name in ("node1", "node2", "node3", "proxy", "below", "client")}
BROKER_FILE, CLUSTERS_FILE = "bmqbrkrcfg.json", "clusters.json"
LISTENERS = ("appConfig", "networkInterfaces", "tcpInterface", "listeners")


class Secured:
    """A cluster of three and its certificates; `required`: nobody connects without one, or without credentials."""

    def __init__(self, folder: Path, *, required: bool) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.cluster = ClusterProcesses(folder)
        self.required = required
        for number in self.cluster.nodes:
            self.secure(folder / f"node{number}", f"node{number}", (0, 1, 2), "myClusters")
            spoil(folder / f"node{number}", BROKER_FILE, *LISTENERS, 0, "tls", value=True)

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files with a certificate for this host and `name`, and its key."""
        certificate = self.authority.issue_cert("localhost", HOST, name)
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        for file, blob in zip(files, (certificate.cert_chain_pems[0], certificate.private_key_pem), strict=True):
            blob.write_to_path(file)
        return files

    @property
    def authority_file(self) -> Path:
        file = self.folder / "authority.pem"
        self.authority.cert_pem.write_to_path(file)
        return file

    def secure(self, config: Path, name: str, nodes: tuple[int, ...], clusters: str) -> None:
        """Have the broker `name` dial over TLS, show its certificate, and send its credentials, if those are wanted."""
        certificate, key = self.issue(name)
        tls: dict[str, Any] = {
            "certificateAuthority": str(self.authority_file),
            "certificate": str(certificate),
            "key": str(key),
            "clientCertificate": "REQUIRED" if self.required else "OPTIONAL",
        }
        spoil(config, BROKER_FILE, "appConfig", "tlsConfig", value=tls)
        for index in nodes:
            spoil(config, CLUSTERS_FILE, clusters, 0, "nodes", index, "transport", "tcp", "tls", value=True)
        if self.required:
            settings = [{"key": user, "value": {"stringVal": password}} for user, password in USERS.items()]
            own = {"username": name, "password": USERS[name]}
            authentication = {
                "authenticators": [{"name": "BasicAuthenticator", "settings": settings}],
                "anonymousCredential": {"disallow": {}},
                "credentialProvider": {
                    "name": "BasicCredentialProvider",
                    "settings": [{"key": key, "value": {"stringVal": value}} for key, value in own.items()],
                },
            }
            spoil(config, BROKER_FILE, "appConfig", "authentication", value=authentication)

    def proxies(self) -> tuple[NodeProcess, NodeProcess]:
        """A proxy in front of the cluster, as strict as its nodes; and one below it, whose clients come as they are."""
        (cluster,) = json.loads((self.folder / "node1" / CLUSTERS_FILE).read_text())["myClusters"]
        upper = self._proxy("proxy", cluster["name"], cluster["nodes"])
        place = {"tcp": {"endpoint": f"tcp://{HOST}:{upper.port}"}}
        lower = self._proxy("below", cluster["name"], [{"id": 1, "name": "proxy", "transport": place}])
        assert lower.config_dir is not None
        spoil(lower.config_dir, BROKER_FILE, *LISTENERS, 0, "tls", value=False)
        spoil(lower.config_dir, BROKER_FILE, "appConfig", "authentication", "anonymousCredential", value=None)
        return upper, lower

    def _proxy(self, name: str, cluster_name: str, nodes: list[dict[str, Any]]) -> NodeProcess:
        config = self.folder / name
        shutil.copytree(self.folder / "node1", config, ignore=shutil.ignore_patterns("storage"))
        (config / CLUSTERS_FILE).write_text(json.dumps({"proxyClusters": [{"name": cluster_name, "nodes": nodes}]}))
        self.secure(config, name, tuple(range(len(nodes))), "proxyClusters")
        return NodeProcess(config / "storage", config_dir=config, port=free_port())

    def stranger(self, number: int, name: str) -> ssl.SSLSocket:
        """A connection to a node from who has the certificate `name`, and has authenticated as the client."""
        context = ssl.create_default_context(cafile=str(self.authority_file))
        context.load_cert_chain(*self.issue(name))
        sock = socket.create_connection((HOST, self.cluster.nodes[number].port), WAIT_S)
        stream = context.wrap_socket(sock, server_hostname=HOST)
        request = AuthenticationRequest(mechanism="BASIC", data=f"client:{USERS['client']}".encode())
        message = ber.encode(AuthenticationMessage(choice=request))
        stream.sendall(build_schema_event(message, EventType.AUTHENTICATION))
        assert stream.recv(1 << 16)
        return stream


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path, required=True)
    with made.cluster:
        made.cluster.wait_available()
        yield made


def run(*words: str) -> tuple[int, str]:
    """A command's exit code and what it printed."""
    command = [sys.executable, "-c", "from bmqctl.app import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stdout + done.stderr


def seen(cluster: ClusterProcesses, number: int) -> tuple[object, bytes]:
    """Return a node's role, and its stored term."""
    return cluster.role(number), (cluster.nodes[number].data_dir / "elector.term").read_bytes()


def test_strangers_are_not_heard(secured: Secured) -> None:
    """One says that it is a node, and names the last term there is: it would have been followed, and the term kept."""
    cluster = secured.cluster
    leader = cluster.leader()
    before = {number: seen(cluster, number) for number in cluster.nodes}
    heartbeat = build_schema_event(
        ber.encode(ElectorMessage(term=(1 << 64) - 1, choice=LeaderHeartbeat())), EventType.ELECTOR
    )
    for number, node in cluster.nodes.items():
        for other in {1, 2, 3} - {number}:
            with secured.stranger(number, "client") as stream:
                stream.sendall(node_identity(other) + heartbeat)
                while stream.recv(1 << 16):
                    pass
        node.wait_for("has authenticated as 'BASIC_USER-client' and has a certificate for")
    # Nor does anybody get in without a certificate.
    context = ssl.create_default_context(cafile=str(secured.authority_file))
    with (
        socket.create_connection((HOST, cluster.nodes[1].port), WAIT_S) as sock,
        context.wrap_socket(sock, server_hostname=HOST) as stream,
        pytest.raises(ssl.SSLError, match=r"(?i)certificate required"),
    ):
        stream.recv(1 << 16)
    assert cluster.leader() == leader
    for number, node in cluster.nodes.items():
        assert seen(cluster, number) == before[number]
        assert "has connected again" not in node.output
        assert "has disconnected" not in node.output
        assert "secret-of-" not in node.output


def test_a_secured_cluster_serves_fails_over_and_heals(secured: Secured) -> None:
    cluster, uri = secured.cluster, queue_name(STRONG)
    payloads = [b"%06d" % number for number in range(300)]
    upper, lower = secured.proxies()
    with upper, lower:
        lower.wait_for("is available")
        with Client(lower.uri) as client:
            client.open(uri, read=True, write=True)

            def post(first: int) -> None:
                acks = client.post_all(uri, payloads[first : first + 100])
                assert {ack.status for ack in acks} == {blazingmq.AckStatus.SUCCESS}

            post(0)
            first = cluster.leader()
            cluster.kill(first)
            assert cluster.leader() != first
            post(100)
            shutil.rmtree(cluster.nodes[first].data_dir)
            cluster.start(first).wait_for("is available")
            # Without the healed one there is no majority now.
            second = cluster.leader()
            cluster.kill(second)
            assert cluster.leader() != second
            post(200)
            confirm(client.wait_for_messages(300, uri))
            assert list(dict.fromkeys(client.payloads(uri))) == payloads


def test_certificates_alone_prove_who_nodes_are(tmp_path: Path) -> None:
    """Clients need none. A node with a certificate for another is left alone: the others are enough."""
    secured = Secured(tmp_path, required=False)
    shutil.copy(tmp_path / "node3.pem", tmp_path / "node1.pem")
    shutil.copy(tmp_path / "node3.key", tmp_path / "node1.key")
    with secured.cluster as cluster:
        told = "claims to be node 1, 'node1', but has a certificate for localhost, node3"
        cluster.nodes[2].wait_for(told)
        for number in (2, 3):
            cluster.nodes[number].wait_for("is available")
        options = SessionOptions(tls_authority=secured.authority_file)
        statuses = trio.run(_post, cluster.nodes[3].port, options, 50)
        assert statuses == {0}
        assert cluster.role(1)[2] == "None"
        endpoint = f"tcp://localhost:{cluster.nodes[3].port}"
        code, text = run("cluster", "explain", "-b", endpoint, "--tls-authority", str(secured.authority_file))
        assert code == 1
        assert told in text


async def _post(port: int, options: SessionOptions, count: int) -> set[int]:
    with trio.fail_after(WAIT_S):
        async with Session.connect("localhost", port, options) as session:
            queue = await session.open_queue(queue_name(STRONG), write=True)
            return {int((await queue.post(b"%d" % number)).status) for number in range(count)}
