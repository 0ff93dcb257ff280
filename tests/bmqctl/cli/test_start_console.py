"""The console beside a broker: which cluster each command of `bmqctl start` has it show, and what is refused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.cli.run import start_blazingmq, start_rocketmq_group
from bmqctl.common.ports import free_port, free_ports
from bmqctl.console import process as console_process
from broker.bmq.assembly import app as bmq_app
from broker.rocketmq.assembly import app as rocketmq_app
from broker.rocketmq.assembly import proxy as rocketmq_proxy
from tests.integration.rocketmq_groups.group_rig import OFFSETS, PORTS_OF_GROUP
from tests.rigs.config_files import PORT, spoil, write_config, write_proxy_config

TLS = Path(__file__).parents[2] / "rigs" / "tls"


@pytest.fixture
def consoles(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of the consoles that would have been run, beside brokers that end at once with exit code 7."""
    found: list[list[str]] = []

    @contextmanager
    def run_console(sock: Any, words: Sequence[str]) -> Iterator[Callable[[], None]]:
        sock.close()
        yield lambda: found.append(list(words))

    def run(*given: Any) -> int:
        given[-1]()
        return 7

    monkeypatch.setattr(console_process, "run_console", run_console)
    monkeypatch.setattr(start_rocketmq_group, "_wait_ready", _first_broker)
    for module, name in (
        (bmq_app, "run_node"),
        (bmq_app, "run_proxy"),
        (start_blazingmq, "run_members"),
        (rocketmq_app, "run_rocketmq"),
        (start_rocketmq_group, "run_members"),
        (rocketmq_proxy, "run_rocketmq_proxy"),
    ):
        monkeypatch.setattr(module, name, run)
    return found


async def _first_broker(nodes: Sequence[Any]) -> list[str]:
    return [str(nodes[0].broker)]


def start(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["start", *words, "--console-port", str(free_port())])
    return found.exit_code, found.output


def brokers(*places: str) -> list[str]:
    return [word for place in places for word in ("--broker", f"tcp://{place}")]


def test_the_cluster_of_each_command(consoles: list[list[str]], tmp_path: Path) -> None:
    # A group tries whether its ports are free.
    first = free_ports(PORTS_OF_GROUP)
    ports = [word for option, at in OFFSETS.items() for word in (option, str(first + at))]
    cluster = ("cluster", "--dir", str(tmp_path / "cluster"), "--host", "0.0.0.0", "--port", "4000")
    for words, expected in (
        (("node",), brokers("127.0.0.1:30114")),
        (("node", "--host", "::1", "--port", "4000"), brokers("[::1]:4000")),
        (("node", str(write_proxy_config(tmp_path / "proxy"))), brokers(f"127.0.0.1:{PORT + 1}")),
        (("proxy", "-u", "one:30114,[::1]:1"), brokers("one:30114", "[::1]:1")),
        (cluster, brokers("127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002")),
        (("rocketmq", "--host", "0.0.0.0", "--nameserver-port", "4"), ["--nameserver", "127.0.0.1:4"]),
        (
            ("rocketmq", "--nameserver", "ns:1;other:2", "--nameserver-port", "4"),
            ["--nameserver", "127.0.0.1:4;ns:1;other:2"],
        ),
        (
            ("rocketmq", "-n", "3", "--store", str(tmp_path / "group"), *ports),
            ["--nameserver", f"127.0.0.1:{first};127.0.0.1:{first + 10};127.0.0.1:{first + 20}"],
        ),
        (("rocketmq-proxy", "-n", "one:1;two:2", "-n", "three:3"), ["--nameserver", "one:1;two:2;three:3"]),
    ):
        code, text = start(*words)
        assert code == 7, text
        assert consoles.pop() == [*expected, "--host", "127.0.0.1"]


def test_a_node_whose_listeners_all_speak_tls(consoles: list[list[str]], tmp_path: Path) -> None:
    config = write_config(tmp_path / "etc")
    authority = str(TLS / "authority.pem")
    tls = {
        "certificateAuthority": authority,
        "certificate": str(TLS / "broker.pem"),
        "key": str(TLS / "broker.key"),
        "versions": "TLSv1.3",
    }
    listeners = [{"name": "tls", "address": "0.0.0.0", "port": PORT, "tls": True}]
    endpoint = ("myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint")
    spoil(config, "clusters.json", *endpoint, value=f"tcp://localhost:{PORT}")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=tls)
    spoil(config, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", "tcpInterface", "listeners", value=listeners)
    assert start("node", str(config))[0] == 7
    # By the host that the cluster's file has, for which the certificate is.
    assert consoles.pop() == [*brokers(f"localhost:{PORT}"), "--tls-authority", authority, "--host", "127.0.0.1"]


def test_nodes_of_rocketmq_that_speak_tls(consoles: list[list[str]], tmp_path: Path) -> None:
    authority = str(TLS / "authority.pem")
    config = tmp_path / "broker.conf"
    given = ("rocketmq", "--config", str(config), "--store", str(tmp_path / "store"))
    config.write_text("tlsServerMode=enforcing\n")
    assert "no tlsClientTrustCertPath names the authority" in start(*given)[1]
    config.write_text(f"tlsServerMode=enforcing\ntlsClientTrustCertPath={authority}\n")
    proxy = ("rocketmq-proxy", "-n", "127.0.0.1:9876", "--tls-trust", authority)
    for words in (given, proxy):
        assert start(*words)[0] == 7
        trust = ["--tls-authority", authority]
        assert consoles.pop() == ["--nameserver", "127.0.0.1:9876", *trust, "--host", "127.0.0.1"]


def test_options_of_the_console(consoles: list[list[str]], tmp_path: Path) -> None:
    certificate, key = tmp_path / "console.pem", tmp_path / "console.key"
    issued = trustme.CA().issue_cert("ops.example.com")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    https = ("--console-certificate", str(certificate), "--console-key", str(key))
    names = ("--console-allow-host", "ops.example.com", "--console-allow-host", "ops")
    assert start("node", *https, *names, "--console-host", "0.0.0.0") == (7, "")
    assert consoles.pop()[2:] == [
        *("--host", "0.0.0.0", "--allow-host", "ops.example.com", "--allow-host", "ops"),
        *("--certificate", str(certificate), "--key", str(key)),
    ]


def test_refusals(consoles: list[list[str]], tmp_path: Path) -> None:
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("x")
    certificate, key = str(TLS / "broker.pem"), str(TLS / "broker.key")
    none = write_proxy_config(tmp_path / "none")
    spoil(none, "clusters.json", "proxyClusters", value=[])
    for words, reason in (
        (("--console-certificate", certificate), "--console-certificate and --console-key go together"),
        (("--console-certificate", "/nowhere", "--console-key", key), "--console-certificate: /nowhere: No such file"),
        (("--console-certificate", certificate, "--console-key", "/nowhere"), "--console-key: /nowhere: No such file"),
        (
            ("--console-certificate", str(no_pem), "--console-key", key),
            "expected a certificate and its key, without a password, in",
        ),
        (("--console-host", "192.0.2.1"), "the console cannot listen on 192.0.2.1:"),
    ):
        code, text = start("node", *words)
        assert (code, text.count("\n")) == (2, 1)
        assert text.startswith("bmqctl start node: ")
        assert reason in text
    code, text = start("proxy", str(none))
    assert code == 2
    assert "a console shows one cluster, and those of this proxy are: none yet; run `bmqctl console --broker`" in text
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = str(other.getsockname()[1])
        found = CliRunner().invoke(app, ["start", "node", "--console-port", port])
    assert (found.exit_code, f"cannot listen on 127.0.0.1:{port}: Address already in use" in found.output) == (2, True)
    found = CliRunner().invoke(app, ["start", "rocketmq", "--console-allow-host", "ops"])
    assert (found.exit_code, "go with --console-port" in found.output) == (2, True)
    assert consoles == []
