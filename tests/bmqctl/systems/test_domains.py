"""Domains in the files of BlazingMQ's brokers: created, listed, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from broker.bmq.config import default_config, load_broker_config
from broker.bmq.config.local_cluster import write_local_cluster


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["domain", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def listed(place: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(run("list", "--in", place, "--output", "json"))}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a node that was started without a configuration."""
    (tmp_path / "bmq_0.20260101_000000.bmq_journal").touch()
    return tmp_path


def test_a_domain_beside_the_store_of_a_node_without_a_configuration(store: Path) -> None:
    before = listed(store)
    assert "bmq.test.persistent.priority" in before
    assert str(store / "domains" / "my.domain.json") in run("create", "my.domain", "--in", store, "--ttl", 60)
    assert listed(store)["my.domain"] == {
        "name": "my.domain",
        "mode": "priority",
        "storage": "fileBacked",
        "consistency": "eventual",
        "apps": "",
        "file": str(store / "domains" / "my.domain.json"),
    }
    found = default_config(data_dir=store).resolve_domain("my.domain")
    assert found is not None
    assert found.parameters.message_ttl == 60
    assert listed(store).keys() - before.keys() == {"my.domain"}


def test_a_domain_of_each_node_of_a_cluster(tmp_path: Path) -> None:
    folders = write_local_cluster(tmp_path, 3, "127.0.0.1", 31_000)
    run("create", "news", "--in", tmp_path, "--mode", "fanout", "--app", "billing", "--app", "audit")
    for folder in folders:
        found = load_broker_config(folder).resolve_domain("news")
        assert found is not None
        assert found.cluster == "local"
    row = listed(tmp_path)["news"]
    assert (row["mode"], row["consistency"], row["apps"]) == ("fanout", "strong", "billing, audit")
    run("create", "shouts", "--in", tmp_path, "--mode", "broadcast")
    assert listed(tmp_path)["shouts"]["storage"] == "inMemory"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("../x",), "../x: a domain's name has"),
        ((".x",), ".x: a domain's name has"),
        (("x", "--mode", "fanout"), "a fan-out needs --app"),
        (("x", "--app", "a"), "a fan-out needs --app"),
        (("x" * 251,), "at most 250 letters"),
        (("old",), "there is a domain old already: give --replace"),
    ],
)
def test_refusals(store: Path, words: tuple[str, ...], reason: str) -> None:
    run("create", "old", "--in", store)
    assert reason in run("create", *words, "--in", store, code=2)
    assert sorted(each.name for each in (store / "domains").iterdir()) == ["old.json"]


def test_a_domain_is_replaced_if_asked(store: Path) -> None:
    run("create", "old", "--in", store)
    run("create", "old", "--in", store, "--mode", "broadcast", "--replace")
    assert listed(store)["old"]["mode"] == "broadcast"


def test_a_folder_that_is_no_place_is_refused(tmp_path: Path) -> None:
    for command in (("list",), ("create", "x")):
        assert f"{tmp_path}: is neither a folder with bmqbrkrcfg.json" in run(*command, "--in", tmp_path, code=2)
    assert list(tmp_path.iterdir()) == []
