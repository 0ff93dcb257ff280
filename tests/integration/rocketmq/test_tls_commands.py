"""Each command that administers RocketMQ, against a node that takes no connections but those with TLS."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.carrying.messages.ends import Reach
from bmqctl.console.rocketmq import connector
from bmqctl.systems.node_process import HOST, RocketProcess
from bmqctl.systems.rocketmq.cluster import places_of
from tests.integration.rocketmq.authority import Authority
from tests.rigs.messages_at_hand import run

COMMANDS = (
    "cluster status",
    "cluster explain",
    "check cluster",
    "check group readers --topic orders",
    "top --once",
    "topic list",
    "topic show orders",
    "topic create invoices --queues 2; topic alter invoices --queues 4; topic delete invoices --yes",
    "group list",
    "group show readers",
    "group create writers; group delete writers --yes",
    "group seek readers --topic orders --to begin --yes",
    "client list",
    "definitions export",
    "dead-letters list",
    "bundle --file {folder}/bundle.tar.gz",
    "bench --rocketmq --topic load --count 20",
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RocketProcess]:
    folder = tmp_path_factory.mktemp("node")
    given = {"tlsServerMode": "enforcing", **authority.certificate}
    (folder / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    with RocketProcess(folder / "store", config_file=folder / "broker.conf") as process:
        orders = f"rocketmq://{process.nameserver}/orders"
        trust = ("--tls-authority", authority.trust)
        run("post", orders, "one", *trust)
        run("tail", f"{orders}?group=readers", "--from-start", "--count", "1", *trust)
        yield process


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_speaks_tls(node: RocketProcess, authority: Authority, tmp_path: Path, command: str) -> None:
    for each in command.format(folder=tmp_path).split(";"):
        run(*shlex.split(each), "--nameserver", node.nameserver, "--tls-authority", authority.trust)


@pytest.mark.parametrize("command", ["cluster status", "topic list", "topic show orders", "dead-letters list"])
def test_without_tls_a_command_says_what_may_be_expected(node: RocketProcess, command: str) -> None:
    _, errors = run(*shlex.split(command), "--nameserver", node.nameserver, code=2)
    assert "it may expect TLS" in errors


def test_a_context_has_the_authority(
    node: RocketProcess, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = f"rocketmq://{node.nameserver}"
    run("context", "add", "orders", place, "--tls-authority", authority.trust, "--use")
    assert "orders" in run("topic", "list")[0].split()
    assert run("browse", "rocketmq:///orders", "--raw")[0] == "one\n"


def test_a_certificate_of_another_authority_is_not_trusted(node: RocketProcess, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    _, errors = run("topic", "list", "--nameserver", node.nameserver, "--tls-authority", other.trust, code=2)
    assert "no TLS" in errors
    assert "certificate verify failed" in errors


def test_a_console_speaks_tls(node: RocketProcess, authority: Authority) -> None:
    connect = connector(places_of(None, [node.nameserver]), Reach("console", authority.trust))
    seen = connect(None).look()
    assert "orders" in {each.name for each in seen.sample.counted}
    assert connect(None).ask("messages", {"name": "orders"})["total"] == 1


def test_a_node_without_tls_is_said_to_have_none(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "broker.conf").write_text("tlsServerMode=disabled\n")
    with RocketProcess(tmp_path / "store", config_file=tmp_path / "broker.conf") as plain:
        words = ("topic", "list", "--nameserver", f"{HOST}:{plain.nameserver_port}")
        _, errors = run(*words, "--tls-authority", authority.trust, code=2)
        assert "no TLS" in errors
        assert "the peer may have none" in errors
