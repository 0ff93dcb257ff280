"""A node whose configuration has fewer partitions than its store: refused, and told by each command that checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeFailed, NodeProcess, free_port
from tests.rigs.config_files import BROKER, spoil, write_config
from tests.rigs.official import Client

QUEUES = [f"bmq://shop.prices/q{number}" for number in range(4)]
MESSAGES = 5


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def with_partitions(config: Path, count: int) -> None:
    spoil(config, "clusters.json", "myClusters", 0, "partitionConfig", "numPartitions", value=count)


@pytest.fixture
def stopped(tmp_path: Path) -> NodeProcess:
    """A node of four partitions that has messages in each, stopped."""
    config, port = write_config(tmp_path / "etc"), free_port()
    tcp: dict[str, Any] = BROKER["appConfig"]["networkInterfaces"]["tcpInterface"]  # type: ignore[index]
    spoil(config, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", "tcpInterface", value={**tcp, "port": port})
    node = {"id": 0, "name": "one", "transport": {"tcp": {"endpoint": f"tcp://localhost:{port}"}}}
    spoil(config, "clusters.json", "myClusters", 0, "nodes", value=[node])
    store = tmp_path / "store"
    for name in ("location", "archiveLocation"):
        spoil(config, "clusters.json", "myClusters", 0, "partitionConfig", name, value=str(store))
    with_partitions(config, 4)
    process = NodeProcess(store, config_dir=config, port=port)
    with process, Client(process.uri) as client:
        for uri in QUEUES:
            client.open(uri, write=True)
            client.post_all(uri, [b"kept"] * MESSAGES)
    return process


def test_fewer_are_refused_with_the_remedy(stopped: NodeProcess) -> None:
    config, store = stopped.config_dir, stopped.data_dir
    assert config is not None
    files = {path.name: path.read_bytes() for path in store.iterdir() if path.name.startswith("bmq_")}
    with_partitions(config, 2)
    with pytest.raises(NodeFailed) as failed:
        stopped.start()
    assert failed.value.exit_code == 2
    problem = f"is 2, but the store {store} has partition 2, 3, whose queues and messages would be hidden"
    assert f"$.myClusters[0].partitionConfig.numPartitions: {problem}; set it to 4 or more" in failed.value.output
    assert {path.name: path.read_bytes() for path in store.iterdir() if path.name.startswith("bmq_")} == files

    code, out = run("config", "validate", config, "--output", "json")
    faults = [each for each in json.loads(out) if each["kind"] == "fault"]
    assert (code, [each["problem"] for each in faults]) == (1, [problem])
    code, out = run("doctor", "--config", config, "--output", "json")
    states = {each["found"]: each["state"] for each in json.loads(out)}
    assert code == 1
    assert [state for found, state in states.items() if problem in found] == ["problem"]
    assert run("journal", "validate", store)[0] == 0
    code, out = run("journal", "validate", store, "--config", config, "--json")
    assert (code, json.loads(out)["counts"]) == (1, {"partition-unserved": 1})


def test_a_store_elsewhere_is_looked_at_too(stopped: NodeProcess, tmp_path: Path) -> None:
    config, store = stopped.config_dir, stopped.data_dir
    assert config is not None
    with_partitions(config, 3)
    elsewhere = str(tmp_path / "elsewhere")
    spoil(config, "clusters.json", "myClusters", 0, "partitionConfig", "location", value=elsewhere)
    assert run("config", "validate", config)[0] == 0
    _, out = run("doctor", store, "--config", config, "--output", "json")
    (found,) = [each["found"] for each in json.loads(out) if each["state"] == "problem"]
    assert f"the store {store} has partition 3" in found


def test_a_partition_that_only_the_ledger_has_counts(stopped: NodeProcess) -> None:
    config, store = stopped.config_dir, stopped.data_dir
    assert config is not None
    for path in store.glob("bmq_[23].*"):
        path.unlink()
    with_partitions(config, 2)
    assert "has partition 2, 3" in run("config", "validate", config)[1]
    with pytest.raises(NodeFailed) as failed:
        stopped.start()
    assert (failed.value.exit_code, "has partition 2, 3" in failed.value.output) == (2, True)


@pytest.mark.parametrize("count", [4, 8])
def test_as_many_and_more_are_served(stopped: NodeProcess, count: int) -> None:
    assert stopped.config_dir is not None
    with_partitions(stopped.config_dir, count)
    assert run("config", "validate", stopped.config_dir)[0] == 0
    with stopped as node:
        assert f"queues: 4, messages: {4 * MESSAGES}, " in node.ready_line
    assert run("journal", "validate", stopped.data_dir, "--config", stopped.config_dir)[0] == 0
