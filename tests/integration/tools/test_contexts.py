"""Commands that reach a node through a context: its address, its credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bmqctl.systems.node_process import RocketProcess
from bmqctl.testing import NodeProcess
from tests.rigs.config_files import spoil, write_config
from tests.waiting import WAIT_S

AUTHENTICATION = {
    "authenticators": [
        {"name": "BasicAuthenticator", "settings": [{"key": "ops", "value": {"stringVal": "x"}}]},
    ],
    "anonymousCredential": {"disallow": {}},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BMQ_PORT", raising=False)
    return tmp_path


def bmqctl(*words: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", "from bmqctl.app import main; main()", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


def test_each_command_reaches_the_node_of_the_current_context(node: NodeProcess) -> None:
    assert bmqctl("context", "add", "here", node.uri, "--use") == (0, "", "")
    code, out, _ = bmqctl("admin", "BROKERCONFIG", "DUMP")
    assert (code, json.loads(out)["networkInterfaces"]["tcpInterface"]["port"]) == (0, node.port)
    assert bmqctl("cluster", "explain") == (0, "No problems, according to 1 of 1 nodes.\n", "")
    code, out, err = bmqctl("bench", "--count", "10", "--json")
    assert (code, json.loads(out)["plan"]["port"]) == (0, node.port), err
    queue = ("-q", "bmq://bmq.test.mem.priority/contexts", "-f", "write,ack")
    assert bmqctl("tool", "--mode", "auto", *queue, "--eventscount", "1", "-v", "error")[0] == 0
    # Nobody listens on port 1, which the variable of this command names before the context does.
    assert bmqctl("tool", "--mode", "syschk", *queue, "--timeout", "1", BMQ_PORT="1")[0] != 0


def test_a_node_that_authenticates_takes_the_credentials_of_a_context(home: Path) -> None:
    config = write_config(home / "etc")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=AUTHENTICATION)
    secret = home / "secret"
    secret.write_text("ops:x\n")
    with NodeProcess(home / "store", config_dir=config) as node:
        known = ("--authn-mechanism", "BASIC", "--authn-data-file", str(secret))
        assert bmqctl("context", "add", "nobody", node.uri, "--use")[0] == 0
        assert bmqctl("context", "add", "ops", node.uri, *known)[0] == 0
        assert bmqctl("admin", "CLUSTERS", "LIST")[0] == 2
        assert bmqctl("admin", "--context", "ops", "CLUSTERS", "LIST")[0] == 0
        assert bmqctl("admin", "CLUSTERS", "LIST", BMQCTL_CONTEXT="ops")[0] == 0
        assert bmqctl("admin", "--context", "ops", "CLUSTERS", "LIST", BMQCTL_AUTHN_DATA="ops:y")[0] == 2
        secret.write_text("ops:z\n")
        assert bmqctl("admin", "--context", "ops", "CLUSTERS", "LIST")[0] == 2


def test_a_cluster_of_rocketmq_is_reached_through_its_nameserver(home: Path) -> None:
    with RocketProcess(home / "store") as node:
        assert bmqctl("context", "add", "orders", f"rocketmq://{node.nameserver}", "--use")[0] == 0
        code, out, err = bmqctl("cluster", "status", "--json")
        assert (code, json.loads(out)["nameservers"][0]["address"]) == (0, node.nameserver), err
        code, out, err = bmqctl("bench", "--count", "10", "--json")
        assert (code, json.loads(out)["plan"]["port"]) == (0, node.nameserver_port), err
