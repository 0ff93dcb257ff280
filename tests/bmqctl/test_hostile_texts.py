"""Commands print names, contents and answers of others so that they act on no terminal and in no spreadsheet."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.cli.watch import cluster
from bmqctl.common.render import OutputFormat
from bmqctl.systems.blazingmq.cluster import BlazingMQCluster
from bmqctl.systems.rocketmq.cluster import RocketMQCluster
from bmqctl.systems.rocketmq.status.view import Heard, Unheard, view_of
from bmqctl.systems.system import ClusterOptions
from tests.bmqctl.hostile_texts_rig import HOSTILE, assert_harmless, cells
from tests.bmqctl.stores.rocketmq.logs import message, write_log
from tests.bmqctl.systems.rocketmq.status.answers import broker, info


def run(*words: str) -> str:
    """Run a command, and return all that it prints."""
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.output


def assert_no_formula(text: str) -> None:
    for cell in cells(text):
        assert not cell.startswith(("=", "+", "@")), cell
        assert not re.match(r"-(?![\d.]+$)", cell), cell


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def hostile_cluster(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in which everything that a peer may name is hostile."""
    answers = broker(1, is_master=True, brokerName=hostile, brokerClusterName=hostile, enableControllerMode="false")
    if "runtime" in answers._fields:
        answers = answers._replace(runtime={"unconsumedFileAlarm": hostile})
    lost = broker(2, is_master=False, brokerName=hostile, enableControllerMode="false")
    heard = Heard(
        {hostile: info(hostile, "10.0.0.1:10911")},
        {},
        {},
        {
            hostile: answers,
            "10.0.0.1:10911": lost,
            "x": Unheard(hostile),
        },
        hostile,
    )
    monkeypatch.setattr(RocketMQCluster, "_view", lambda self: view_of(heard))


@pytest.mark.parametrize("wanted", OutputFormat)
@pytest.mark.parametrize("asks", [RocketMQCluster.status, RocketMQCluster.problems])
def test_answers_of_rocketmq(
    hostile_cluster: None, hostile: str, asks: Any, wanted: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        cluster._print(partial(asks, RocketMQCluster(ClusterOptions(is_rocketmq=True))), wanted)
    out = capsys.readouterr().out
    if wanted is OutputFormat.TABLE:
        assert_harmless(out)
        # No text begins a line of its own.
        assert "\nOK - all" not in out
    elif wanted is OutputFormat.CSV:
        assert_harmless(out.replace("\r\n", "\n"))
        assert_no_formula(out)
    else:
        # JSON is exact.
        assert_harmless(out)
        found = json.loads(out) if wanted is OutputFormat.JSON else [json.loads(line) for line in out.splitlines()]
        assert hostile in json.dumps(found, ensure_ascii=False) or json.dumps(hostile)[1:-1] in json.dumps(found)


def test_answers_of_blazingmq(
    hostile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(BlazingMQCluster, "_views", lambda self: [])
    monkeypatch.setattr("bmqctl.systems.blazingmq.cluster.problems_of", lambda views: {hostile: [hostile]})
    output = run("cluster", "explain")
    assert_harmless(output)
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("journal", "dump"),
        ("journal", "summary"),
        ("journal", "queues"),
        ("journal", "validate"),
        ("journal", "diff", "/"),
        ("journal", "rejected"),
        ("journal", "ledger"),
        ("config", "validate"),
        ("definitions", "diff"),
        ("check", "disk"),
        ("bundle", "--offline"),
        ("context", "use"),
        ("admin", "-b"),
        ("queue", "explain"),
        ("spark-report",),
        ("post", "--file"),
    ],
)
def test_error_messages(words: tuple[str, ...], hostile: str) -> None:
    # A command line has neither zeros nor lone halves of pairs.
    assert_harmless(run(*words, hostile.replace("\0", "").replace("\ud800", "")))


@pytest.mark.parametrize("output", ["table", "csv", "json-line"])
def test_messages_of_a_log(hostile: str, output: str, tmp_path: Path) -> None:
    name = hostile.encode("utf-8", "replace").decode().translate({0: None, 1: None, 2: None})
    properties = {name: name, "TAGS": name, "KEYS": name}
    write_log(tmp_path, [message(0, topic=name, properties=properties, body=name.encode())])
    for words in (("dump", "--payload", "text"), ("dump",)):
        assert_dump_harmless(run("journal", *words, str(tmp_path), "--output", output), output)
    for command in ("summary", "queues", "validate"):
        assert_harmless(run("journal", command, str(tmp_path)))


@pytest.mark.parametrize("output", ["table", "csv", "json-line"])
def test_messages_of_a_journal(hostile: str, output: str, tmp_path: Path) -> None:
    uri = "bmq://bmq.test.persistent.priority/orders"
    line = {"type": "MESSAGE", "queue_uri": uri, "payload": hostile.encode("utf-8", "replace").decode()}
    made = CliRunner().invoke(app, ["journal", "build", "-", "--out", str(tmp_path / "store")], input=json.dumps(line))
    assert made.exit_code == 0, made.output
    (journal,) = (tmp_path / "store").glob("*.bmq_journal")
    assert_dump_harmless(run("journal", "dump", "--payload", "text", str(journal), "--output", output), output)


def assert_dump_harmless(found: str, output: str) -> None:
    assert not found.startswith("Usage"), found
    assert_harmless(found.replace("\r\n", "\n"))
    if output == "csv":
        assert_no_formula(found)
