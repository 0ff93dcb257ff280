"""`bmqctl definitions` of a node of RocketMQ, and of the configuration of a BlazingMQ broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.client.admin import AdminClient
from bmqctl.systems.node_process import RocketProcess
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.config_files import write_config


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["definitions", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def write(path: Path, **values: Any) -> str:
    path.write_text(json.dumps(values))
    return str(path)


def test_topics_and_groups(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store") as node:
        at = ("--nameserver", node.nameserver)
        file = write(
            tmp_path / "wanted.json",
            system="RocketMQ",
            topics={"orders": {"readQueueNums": 3, "writeQueueNums": 3, "attributes": {"message.type": "FIFO"}}},
            groups={"billing": {"retryMaxTimes": 5}},
        )
        assert run("diff", file, *at, "--output", "csv")[0] == 1
        code, out = run("apply", file, *at, "--dry-run", "--output", "json")
        assert (code, [(each["action"], each["name"]) for each in json.loads(out)]) == (
            0,
            [("create", "orders"), ("create", "billing")],
        )
        environment = {"XDG_CONFIG_HOME": str(tmp_path / "contexts")}
        words = ["context", "add", "here", f"rocketmq://{node.nameserver}", "--use"]
        assert CliRunner().invoke(app, words, env=environment).exit_code == 0
        result = CliRunner().invoke(app, ["definitions", "apply", file, "--dry-run"], env=environment)
        assert (result.exit_code, "billing" in result.stdout) == (0, True)
        code, out = run("apply", file, *at)
        assert code == 2
        assert "Standard input is not a terminal: give --yes, or --dry-run" in out
        assert run("diff", file, *at)[0] == 1
        assert run("apply", file, *at, "--yes")[0] == 0
        assert run("diff", file, *at) == (0, "Nothing differs.\n")

        exported = tmp_path / "exported.json"
        assert run("export", *at, "--file", str(exported)) == (0, "")
        found = json.loads(exported.read_text())
        assert found["topics"]["orders"]["attributes"] == {"message.type": "FIFO"}
        assert (list(found["topics"]), found["groups"]["billing"]["retryMaxTimes"]) == (["orders"], 5)
        assert run("diff", str(exported), *at) == (0, "Nothing differs.\n")
        # A context or the environment does not change definitions applied again.
        printed = CliRunner().invoke(app, ["definitions", "export", *at], env={"BMQCTL_OUTPUT": "csv"}).stdout
        assert json.loads(printed) == found
        rows = map(json.loads, run("export", *at, "--output", "jsonl")[1].splitlines())
        assert {(row["kind"], row["name"]): row["definition"] for row in rows} == {
            (kind, name): definition for kind in ("topics", "groups") for name, definition in found[kind].items()
        }
        assert "the file of --file is JSON" in run("export", *at, "--output", "csv", "--file", str(tmp_path / "x"))[1]

        # A group that the file leaves out stays, unless it is pruned.
        other = write(tmp_path / "other.json", system="RocketMQ", topics={"orders": {"perm": 4}}, groups={})
        code, out = run("diff", other, *at, "--output", "json")
        differs = {(each["kind"], each["field"]): each["wanted"] for each in json.loads(out)}
        assert differs[("topics", "perm")] == 4
        assert differs[("topics", "readQueueNums")] == 16
        assert differs[("groups", "")] is None
        assert run("apply", other, *at, "--yes")[0] == 0
        code, out = run("diff", other, *at, "--output", "json")
        assert [(each["action"], each["name"]) for each in json.loads(out)] == [("delete", "billing")]
        assert run("apply", other, *at, "--yes", "--prune")[0] == 0
        assert run("diff", other, *at) == (0, "Nothing differs.\n")

        refused = write(tmp_path / "refused.json", system="RocketMQ", topics={"orders": {"attributes": {"odd": "1"}}})
        code, out = run("apply", refused, *at, "--yes")
        assert code == 2
        assert "unsupported key: odd" in out
        assert run("export", *at, "--broker-name", "b") == (
            2,
            "bmqctl definitions export: --broker-name b: there are broker-a\n",
        )


def test_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "contexts"))
    config = write_config(tmp_path / "etc")
    # The current context is of another broker, and does not count.
    assert CliRunner().invoke(app, ["context", "add", "other", "tcp://h:1", "--use"]).exit_code == 0
    code, out = run("export", "--config", str(config))
    assert code == 0
    found = json.loads(out)
    assert found["domains"].keys() == {path.stem for path in (config / "domains").glob("*.json")}
    file = tmp_path / "domains.json"
    file.write_text(out)
    assert run("diff", str(file), "--config", str(config)) == (0, "Nothing differs.\n")
    name = next(name for name, each in sorted(found["domains"].items()) if "definition" in each)
    found["domains"][name]["definition"]["parameters"]["maxConsumers"] = 7
    file.write_text(json.dumps(found))
    with NodeProcess(tmp_path / "store", config_dir=config) as node:
        code, out = run("apply", str(file), "--config", str(config), "--yes", "--output", "json")
        assert code == 0
        assert [(each["name"], each["field"].rpartition(".")[2], each["wanted"]) for each in json.loads(out)] == [
            (name, "maxConsumers", 7)
        ]
        with AdminClient("127.0.0.1", node.port) as client:
            client.send(f"DOMAINS RECONFIGURE {name}")
            assert '"maxConsumers": 7' in client.send(f"DOMAINS DOMAIN {name} INFOS")
    del found["domains"][name]["definition"]["parameters"]["storage"]
    file.write_text(json.dumps(found))
    code, out = run("apply", str(file), "--config", str(config), "--yes")
    assert code == 2
    assert f"domains.{name}: $.definition.parameters.storage: is missing" in out


def test_refusals(tmp_path: Path) -> None:
    port = free_port()
    blazingmq = write(tmp_path / "b.json", system="BlazingMQ", domains={"../x": {}})
    rocketmq = write(tmp_path / "r.json", system="RocketMQ", topics={})
    (tmp_path / "latin.json").write_bytes(b'{"system": "\xe9"}')
    refused: list[tuple[tuple[str, ...], str]] = [
        (("diff", blazingmq), "is of BlazingMQ: name the folder of the broker's configuration with --config"),
        (("diff", blazingmq, "--config", str(tmp_path)), "domains.'../x': is no name of a domain"),
        (("diff", rocketmq, "--config", str(tmp_path)), "is of RocketMQ, and --config names"),
        (("diff", str(tmp_path / "latin.json")), "byte 12 is not UTF-8"),
        (("diff", str(tmp_path / "none.json")), "No such file or directory"),
        (("export", "--config", str(tmp_path)), "no such folder"),
        (("export", "--nameserver", f"127.0.0.1:{port}"), f"127.0.0.1:{port}"),
        (("apply", blazingmq, "--config", str(tmp_path), "--prune"), "is no name of a domain"),
        (("export", "--nameserver", "nowhere"), "expected HOST:PORT"),
    ]
    for words, reason in refused:
        code, out = run(*words)
        assert (code, out.count("\n")) == (2, 1), out
        assert reason in out
