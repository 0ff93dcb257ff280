"""`bmqctl bundle` of nodes that run and of folders of stopped ones; planted secrets are nowhere in the archive."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.systems.node_process import RocketProcess
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.config_files import spoil, write_config
from tests.rigs.official import Client

SECRET = "p1anted-S3cret"
USERS = {
    "authenticators": [
        {"name": "BasicAuthenticator", "settings": [{"key": "ann", "value": {"stringVal": SECRET}}]},
    ],
    "anonymousCredential": {"disallow": {}},
}
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bundle", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def contents(archive: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read()
    return found


def manifest_of(files: dict[str, bytes]) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(files["manifest.json"])
    assert {each["name"]: each["bytes"] for each in manifest["files"]} == {
        name: len(data) for name, data in files.items() if name != "manifest.json"
    }
    return manifest


def test_a_node_of_blazingmq_running_and_stopped(tmp_path: Path) -> None:
    config = write_config(tmp_path / "etc")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=USERS)
    (config / "server.pem").write_text(KEY)
    (config / "odd.json").write_text(KEY)
    store = tmp_path / "store"
    with NodeProcess(store, config_dir=config) as node:
        with (store / "bmqbrkr.log").open("a") as log:
            log.write(f"planted here: {SECRET}\npassword=0ther-S3cret\n")
        archive = tmp_path / "running.tar.gz"
        words = ("--authn-mechanism", "BASIC", "--authn-data", f"ann:{SECRET}")
        code, out = run(str(store), "--config", str(config), "-b", node.uri, "--file", str(archive), *words)
        assert code == 0, out
        files = contents(archive)
        for name, data in files.items():
            assert b"S3cret" not in data, name
        assert archive.stat().st_mode & 0o777 == 0o600
        manifest = manifest_of(files)
        missing = {each["name"]: each["reason"] for each in manifest["missing"]}
        assert all(each["by_design"] for each in manifest["missing"])
        assert missing == {
            "configuration/odd.json": "it has a private key, which is never taken along",
            "configuration/server.pem": "its name is not that of a configuration, and it may be a key",
        }
        assert b"planted here: REDACTED" in files["logs/bmqbrkr.log"]
        place = f"nodes/127.0.0.1_{node.port}"
        assert json.loads(files[f"{place}/statistics.json"])["stats"]
        (health,) = [name for name in files if name.startswith(place) and name.endswith("/health.json")]
        assert json.loads(files[health])["clusterHealth"]["view"]["nodes"]
        assert any(name.startswith("configuration/domains/") for name in files)
        assert {each["subject"] for each in json.loads(files["doctor.json"])} >= {"versions", "disk", "open files"}
        assert any(each["file"].endswith(".bmq_journal") for each in json.loads(files["store/files.json"])["files"])
        assert "numpy" in json.loads(files["versions.json"])["packages"]
    archive = tmp_path / "stopped.tar.gz"
    assert run(str(store), "--file", str(archive))[0] == 0
    files = contents(archive)
    assert "logs/bmqbrkr.log" in files
    assert not any(name.startswith("nodes/") for name in files)
    code, out = run(str(store), "--file", str(archive))
    assert (code, out) == (2, f"bmqctl bundle: {archive}: exists; name another with --file\n")


def test_a_node_of_rocketmq(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"brokerName=orders\ntls.server.keyPassword={SECRET}\n")
    store = tmp_path / "store"
    with RocketProcess(store, config_file=config) as node:
        words = ("--nameserver", node.nameserver, "--topic", "orders", "--count", "40")
        assert CliRunner().invoke(app, ["bench", "--rocketmq", *words]).exit_code == 0
        archive = tmp_path / "running.tar.gz"
        at = ("--nameserver", node.nameserver)
        code, out = run(str(store), "--config", str(config), *at, "--file", str(archive), "--output", "json")
        assert code == 0, out
        assert json.loads(out)["missing"] == []
    files = contents(archive)
    for name, data in files.items():
        assert SECRET.encode() not in data, name
    manifest_of(files)
    place = f"brokers/127.0.0.1_{node.port}"
    assert "orders" in json.loads(files[f"{place}/topics.json"])["topicConfigTable"]
    assert b"brokerName=orders" in files[f"{place}/broker.properties"]
    assert b"tls.server.keyPassword=REDACTED" in files["configuration/broker.conf"]
    assert "store/config/topics.json" in files
    assert "logs/bmqctl.log" in files
    assert b"AVAILABLE" in files["cluster/status.txt"]


def test_broker_that_does_not_answer_is_missing(tmp_path: Path, node: NodeProcess) -> None:
    port = free_port()
    for words in (("-b", f"tcp://127.0.0.1:{port}"), ("--nameserver", f"127.0.0.1:{port}")):
        archive = tmp_path / f"{words[0].strip('-')}.tar.gz"
        code, out = run(*words, "--file", str(archive))
        assert code == 1
        assert f"{port}" in out
        (missing,) = manifest_of(contents(archive))["missing"]
        assert not missing["by_design"]
    archive = tmp_path / "alive.tar.gz"
    with Client(node.uri) as client:
        client.open("bmq://bmq.test.persistent.priority/bundled", write=True)
        assert run("-b", node.uri, "--file", str(archive))[0] == 0
    assert any("queue-internals/" in name and "bundled" in name for name in contents(archive))


def test_logs_are_bounded_and_the_newest_are_first(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "logs").mkdir(parents=True)
    for number in range(3):
        log = store / "logs" / f"node.log.{number}"
        log.write_text("".join(f"{number} {line:09d} {'x' * 52}\n" for line in range(1 << 13)))
        os.utime(log, (1_000 + number, 1_000 + number))
    archive = tmp_path / "b.tar.gz"
    code, out = run(str(store), "--logs-mib", "1", "--file", str(archive))
    assert code == 0
    files = contents(archive)
    logs = {name: data for name, data in files.items() if name.startswith("logs/")}
    assert sum(map(len, logs.values())) <= 1 << 20
    # Of the second log there is the end, from the beginning of a line on.
    assert files["logs/logs/node.log.2"].startswith(b"2 000000000 ")
    assert logs["logs/logs/node.log.1"].startswith(b"1 00000")
    assert logs["logs/logs/node.log.1"].endswith(f"1 {(1 << 13) - 1:09d} {'x' * 52}\n".encode())
    assert "missing: logs/logs/node.log.0: there is no room left: see --logs-mib (left out by design)" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("/nowhere/at/all",), "no such file or folder"),
        (("--config", "/nowhere"), "no such file or folder"),
        (("--file", "/nowhere/b.tar.gz"), "No such file or directory"),
        (("--broker", "nowhere"), "--broker nowhere: expected tcp://HOST:PORT"),
    ],
)
def test_refusals_leave_nothing_behind(
    words: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out = run(*words)
    assert (code, out.count("\n")) == (2, 1)
    assert reason in out
    assert list(tmp_path.iterdir()) == []
