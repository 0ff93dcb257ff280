"""The commands for messages with TLS and users: by their options, and by a context."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import trio

from bmqctl.client.rocketmq import connect
from bmqctl.common.ports import free_ports
from bmqctl.testing import NodeProcess, RocketProcess, free_port
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.config_files import spoil, write_config
from tests.rigs.messages_at_hand import run
from tests.waiting import WAIT_S, eventually

TLS = Path(__file__).parents[2] / "rigs" / "tls"
AUTHENTICATION = {
    "authenticators": [{"name": "BasicAuthenticator", "settings": [{"key": "ops", "value": {"stringVal": "x"}}]}],
    "anonymousCredential": {"disallow": {}},
}
ACCESS = """authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={"username":"root","password":"hush"}
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"hush-inner"}
"""
ADVICE = "it may expect TLS, or credentials"
LIST = ("dead-letters", "list", "--output", "json")
PAYLOADS = b"one\ntwo\nthree\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


def secured(folder: Path, port: int) -> Path:
    """Files of a configuration with one listener, for TLS, and one user."""
    config = write_config(folder / "etc")
    settings = {
        "certificateAuthority": str(TLS / "authority.pem"),
        "certificate": str(TLS / "broker.pem"),
        "key": str(TLS / "broker.key"),
        "versions": "TLSv1.3",
    }
    listener = {"name": "secure", "address": "127.0.0.1", "port": port, "tls": True}
    spoil(config, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=settings)
    spoil(config, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", "tcpInterface", "listeners", value=[listener])
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=AUTHENTICATION)
    endpoint = ("myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint")
    spoil(config, "clusters.json", *endpoint, value=f"tcp://localhost:{port}")
    return config


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_queues_are_reached_with_tls_and_a_user(home: Path) -> None:
    port = free_port()
    one, two, three = (f"bmq://shop.prices/{name}" for name in ("one", "two", "three"))
    with NodeProcess(home / "store", config_dir=secured(home, port), port=port):
        address, authority = f"tcp://localhost:{port}", str(TLS / "authority.pem")
        at, user = ("-b", address, "--tls-authority", authority), ("--authn-mechanism", "BASIC", "--authn-data")
        run("post", one, *at, *user, "ops:x", "--lines", stdin=PAYLOADS)
        assert len(rows_of(run("browse", one, *at, *user, "ops:x", "--json")[0])) == 3
        _, errors = run("tail", one, *at, *user, "ops:y", code=2)
        assert "auth" in errors.lower()
        without_user = run("post", one, "x", *at, code=2), run("browse", one, *at, code=2)
        without_tls = [run(command, one, "-b", address, *user, "ops:x", code=2) for command in ("tail", "browse")]
        assert [ADVICE in errors for _, errors in (*without_user, *without_tls)] == [True] * 4, without_user

        (home / "secret").write_text("ops:x\n")
        known = (*at[2:], *user[:2], "--authn-data-file", home / "secret")
        run("context", "add", "secure", address, *known, "--use")
        assert run("copy", f"{one}?id=left", two, "--count", "2", "--until-idle", "1")[0].startswith(
            "2 messages copied"
        )
        assert run("move", f"{two}?id=left", three, "--yes", "--until-idle", "1")[0].startswith("2 messages moved")
        assert run("tail", f"{three}?id=right", "--raw", "--count", "2")[0] == "one\ntwo\n"
        assert "3 messages" in run("queue", "purge", one, "--yes")[0]
        assert json.loads(run("browse", one, "--output", "json")[0]) == []


async def give_up(nameserver: str) -> None:
    async with connect(f"rocketmq://{nameserver}", credentials=("root", "hush")) as session:
        consumer = await session.consume("three", "billing", from_start=True)
        with trio.fail_after(WAIT_S):
            for _ in range(3):
                (await anext(consumer)).reject(delay_level=-1)
        await consumer.close()


def test_topics_are_reached_with_a_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "broker.conf").write_text(ACCESS)
    with RocketProcess(home / "store", config_file=home / "broker.conf", grpc_port=0) as node:
        one, user = f"rocketmq://{node.nameserver}/one", ("--authn-data", "root:hush")
        run("post", one, *user, "--lines", stdin=PAYLOADS)
        assert len(rows_of(run("browse", one, *user, "--json")[0])) == 3
        _, errors = run("browse", one, "--authn-data", "root:guess", code=2)
        assert "check signature failed" in errors
        run("post", one, "x", code=2)
        run("browse", "rocketmq:///one", code=2)

        monkeypatch.setenv("ORDERS_SECRET", "root:hush")
        run("context", "add", "orders", f"rocketmq://{node.nameserver}", "--authn-data-env", "ORDERS_SECRET", "--use")
        assert run("copy", "rocketmq:///one", "rocketmq:///two")[0].startswith("3 messages copied")
        moved, _ = run("move", "rocketmq:///two?group=movers", "rocketmq:///three", "--yes", "--until-idle", "1")
        assert moved.startswith("3 messages moved")
        output, _ = run("tail", "rocketmq:///three", "--from-start", "--count", "3", "--raw")
        assert sorted(output.split()) == ["one", "three", "two"]
        assert len(run("browse", one, "--context", "orders", "--raw")[0].split()) == 3

        trio.run(give_up, node.nameserver)
        words = ("replay", node.data_dir, "--topic", "one", "--create-topics", "--to")
        assert "3 of 3 messages posted" in run(*words, "rocketmq:///four")[0]
        _, errors = run(*words, f"rocketmq://{node.nameserver}/five", "--authn-data", "root:guess", code=2)
        assert "check signature failed" in errors

        # A message may be given up twice if the session ends meanwhile.
        eventually(lambda: [each for each in json.loads(run(*LIST)[0]) if each["letters"] >= 3])
        assert len(rows_of(run("dead-letters", "show", "billing", "--output", "jsonl")[0])) >= 3
        assert len(rows_of(run("browse", "rocketmq:///%25DLQ%25billing", "--json")[0])) >= 3
        assert run("dead-letters", "resend", "billing", "--to", "topic", "--yes")[0].endswith("to three sent\n")


def test_a_new_cluster_with_tls_and_a_user(tmp_path: Path) -> None:
    """The commands that `config init` prints start the nodes, and make a context that reaches them."""
    folder, port, queue = tmp_path / "orders", free_ports(3), "bmq://bmq.test.persistent.priority/invoices"
    output, _ = run("config", "init", folder, "--nodes", 3, "--port", port, "--tls", "--user", "ada")
    *starts, context = output.splitlines()
    for number, start in enumerate(starts, 1):
        node = folder / f"node{number}"
        assert start == shlex.join(["bmqctl", "start", "node", str(node), "--data-dir", str(node / "storage")])
    assert len(starts) == 3
    run(*shlex.split(context)[1:])
    with ClusterProcesses(folder, port=port) as cluster:
        cluster.wait_available()
        run("post", queue, "invoice 1")
        assert run("browse", queue, "--raw")[0] == "invoice 1\n"
        assert run("cluster", "explain")[0] == "No problems, according to 3 of 3 nodes.\n"
        _, refused = run("post", "--broker", f"tcp://127.0.0.1:{port}", queue, "x", code=2)
        assert ADVICE in refused
        anonymous = ("--broker", f"tcp://127.0.0.1:{port}", "--tls-authority", folder / "ca.pem")
        run("post", *anonymous, queue, "x", code=2)
