"""`bmqctl start node`: what it makes of its options, and how a configuration that cannot be used ends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.commands import start
from broker.config import NodeConfig
from broker.core.durability import FsyncMode, FsyncPolicy

# The exit code of a run, by the policy that it was given.
POLICIES = {FsyncPolicy(FsyncMode.ALWAYS): 8, FsyncPolicy(FsyncMode.INTERVAL, 250): 9}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NodeConfig]:
    """The configurations of the nodes that would have been run; each ends with exit code 7."""
    configs: list[NodeConfig] = []

    def run_node(config: NodeConfig, fsync: FsyncPolicy) -> int:
        configs.append(config)
        return POLICIES.get(fsync, 7)

    monkeypatch.setattr(start, "run_node", run_node)
    return configs


def test_a_node_needs_no_configuration(started: list[NodeConfig]) -> None:
    result = CliRunner().invoke(app, ["start", "node"])
    assert (result.exit_code, result.output) == (7, "")
    (config,) = started
    assert [(listener.address, listener.port) for listener in config.listeners] == [("127.0.0.1", 30114)]


def test_options_replace_the_configuration(started: list[NodeConfig], tmp_path: Path) -> None:
    options = ["--host", "0.0.0.0", "--port", "4000", "--data-dir", str(tmp_path), "-i", "two", "--log-level", "warn"]
    result = CliRunner().invoke(app, ["start", "node", *options])
    assert result.exit_code == 7, result.output
    (config,) = started
    assert [(listener.address, listener.port) for listener in config.listeners] == [("0.0.0.0", 4000)]
    assert config.cluster is not None
    assert config.cluster.partition_config.location == str(tmp_path)
    assert config.broker.app_config.broker_instance_name == "two"
    assert config.broker.task_config.log_controller.console_severity_threshold == "WARN"


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "4000", "-i", "two", "-h", "here", "-t", "small", "-d", "east"],
        ["--port", "4000", "--instanceId=two", "--hostName=here", "--hostTags=small", "--hostDataCenter=east"],
        ["--port", "4000", "--instance-id=two", "--host-name=here", "--host-tags=small", "--host-data-center=east"],
    ],
)
def test_options_may_be_written_as_the_reference_has_them(started: list[NodeConfig], options: list[str]) -> None:
    result = CliRunner().invoke(app, ["start", "node", *options])
    assert result.exit_code == 7, result.output
    (config,) = started
    assert config.listeners[0].port == 4000
    found = config.broker.app_config
    assert (found.broker_instance_name, found.host_name) == ("two", "here")
    assert (found.host_tags, found.host_data_center) == ("small", "east")


def test_a_configuration_that_cannot_be_used_is_one_line(started: list[NodeConfig], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["start", "node", str(tmp_path)])
    assert result.exit_code == 2
    assert started == []
    assert result.stderr == (f"{tmp_path / 'bmqbrkrcfg.json'}: does not exist; create it, or name another directory\n")


def test_a_port_out_of_range_is_a_usage_error(started: list[NodeConfig]) -> None:
    result = CliRunner().invoke(app, ["start", "node", "--port", "70000"])
    assert (result.exit_code, started) == (2, [])


@pytest.mark.parametrize(("policy", "exit_code"), [("never", 7), ("always", 8), ("250", 9)])
def test_the_durability_policy_is_an_option(started: list[NodeConfig], policy: str, exit_code: int) -> None:
    result = CliRunner().invoke(app, ["start", "node", "--fsync", policy])
    assert (result.exit_code, len(started)) == (exit_code, 1)


@pytest.mark.parametrize("what", ["node", "cluster"])
def test_another_durability_policy_is_one_line(started: list[NodeConfig], what: str) -> None:
    result = CliRunner().invoke(app, ["start", what, "--fsync", "sometimes"])
    assert (result.exit_code, started) == (2, [])
    assert result.stderr == (
        "bmqctl: --fsync: 'sometimes' is neither never, nor always, nor milliseconds from 1 to 3600000\n"
    )
