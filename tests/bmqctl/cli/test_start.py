"""`bmqctl start node`: what it makes of its options, and how a configuration that cannot be used ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from broker.bmq.assembly import app as assembly
from broker.bmq.assembly.app import BridgeLimits
from broker.bmq.config import UNNAMED, NodeConfig
from broker.bmq.node.durability import FsyncMode, FsyncPolicy
from tests.rigs.config_files import spoil, write_config, write_proxy_config

# The exit code of a run, by the policy that it was given.
POLICIES = {FsyncPolicy(FsyncMode.ALWAYS): 8, FsyncPolicy(FsyncMode.INTERVAL, 250): 9}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NodeConfig]:
    """The configurations of the nodes that would have been run; each ends with exit code 7."""
    configs: list[NodeConfig] = []

    def run_node(config: NodeConfig, fsync: FsyncPolicy, ready: Callable[[], None]) -> int:
        configs.append(config)
        return POLICIES.get(fsync, 7)

    monkeypatch.setattr(assembly, "run_node", run_node)
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


# -- proxies


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NodeConfig, BridgeLimits]]:
    """Collect the arguments of started proxies; each ends with exit code 7."""
    found: list[tuple[NodeConfig, BridgeLimits]] = []

    def run_proxy(config: NodeConfig, limits: BridgeLimits, ready: Callable[[], None]) -> int:
        found.append((config, limits))
        return 7

    monkeypatch.setattr(assembly, "run_proxy", run_proxy)
    return found


def test_a_proxy_needs_addresses_only(proxies: list[tuple[NodeConfig, BridgeLimits]]) -> None:
    result = CliRunner().invoke(app, ["start", "proxy", "--upstream", "one:30114, tcp://two:30115/,[::1]:1"])
    assert (result.exit_code, result.output) == (7, "")
    ((config, limits),) = proxies
    assert [(listener.address, listener.port) for listener in config.listeners] == [("127.0.0.1", 30113)]
    (cluster,) = config.clusters.proxy_clusters
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [
        (0, "one", 30114),
        (1, "two", 30115),
        (2, "::1", 1),
    ]
    assert cluster.name == UNNAMED
    assert limits == BridgeLimits()


def test_options_of_a_proxy(proxies: list[tuple[NodeConfig, BridgeLimits]], tmp_path: Path) -> None:
    options = ["--cluster", "planets", "--port", "4000", "--data-dir", str(tmp_path), "-d", "east"]
    limits = ["--buffer-mib", "2", "--buffer-messages", "3"]
    result = CliRunner().invoke(app, ["start", "proxy", "-u", "one:30114", *options, *limits])
    assert result.exit_code == 7, result.output
    ((config, given),) = proxies
    assert config.clusters.proxy_clusters[0].name == "planets"
    assert config.run_directory == tmp_path
    assert config.broker.app_config.host_data_center == "east"
    assert given == BridgeLimits(2 << 20, 3)


def test_a_proxy_by_the_references_configuration(
    proxies: list[tuple[NodeConfig, BridgeLimits]], tmp_path: Path
) -> None:
    folder = write_proxy_config(tmp_path / "etc", virtual={"ours": 5})
    assert CliRunner().invoke(app, ["start", "proxy", str(folder)]).exit_code == 7
    ((config, _),) = proxies
    assert config.is_proxy
    assert [cluster.name for cluster in config.clusters.proxy_clusters] == ["mine"]
    assert config.virtual_clusters == {"ours": 5}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "name a directory or --upstream"),
        (["/nowhere", "-u", "one:1"], "name a directory or --upstream"),
        (["/nowhere", "--cluster", "planets"], "--cluster goes with --upstream"),
        (["/nowhere"], "does not exist"),
        (["-u", "one"], "'one' is not HOST:PORT"),
        (["-u", "one:1,:2"], "':2' is not HOST:PORT"),
        (["-u", "one:0"], "'one:0' is not HOST:PORT"),
        (["-u", "one:65536"], "'one:65536' is not HOST:PORT"),
        (["-u", "one:1,"], "'' is not HOST:PORT"),
        (["-u", "a b:1"], "'a b:1' is not HOST:PORT"),
        (["-u", "one:1", "--cluster", ""], "is empty"),
        (["-u", "one:1,localhost:30113"], "localhost:30113 is this broker itself"),
        (["-u", "127.0.0.1:4000", "--port", "4000"], "is this broker itself"),
    ],
)
def test_impossible_options_of_a_proxy_are_reported_in_one_line(
    proxies: list[tuple[NodeConfig, BridgeLimits]], options: list[str], told: str
) -> None:
    result = CliRunner().invoke(app, ["start", "proxy", *options])
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout
    assert not proxies


def test_a_node_of_a_cluster_is_no_proxy(proxies: list[tuple[NodeConfig, BridgeLimits]], tmp_path: Path) -> None:
    folder = write_config(tmp_path / "etc")
    result = CliRunner().invoke(app, ["start", "proxy", str(folder)])
    assert (result.exit_code, proxies) == (2, [])
    assert "is the configuration of a node of cluster 'mine'; use start node" in result.stderr


def test_a_proxy_may_know_no_cluster_yet(proxies: list[tuple[NodeConfig, BridgeLimits]], tmp_path: Path) -> None:
    folder = write_config(tmp_path / "etc")
    spoil(folder, "clusters.json", "myClusters", value=[])
    result = CliRunner().invoke(app, ["start", "proxy", str(folder)])
    assert (result.exit_code, result.output) == (7, "")
    ((config, _),) = proxies
    assert config.clusters.proxy_clusters == ()


def test_a_node_is_found_by_the_name_that_the_command_line_gives(started: list[NodeConfig], tmp_path: Path) -> None:
    """The files of a cluster may be the same on all hosts, and name none of them."""
    folder = write_config(tmp_path / "etc")
    spoil(folder, "bmqbrkrcfg.json", "appConfig", "hostName", value="OVERRIDE")
    nodes = [
        {"id": number, "name": host, "transport": {"tcp": {"endpoint": f"tcp://{host}.invalid:30114"}}}
        for number, host in enumerate(("gallifrey", "skaro"), 1)
    ]
    spoil(folder, "clusters.json", "myClusters", 0, "nodes", value=nodes)
    result = CliRunner().invoke(app, ["start", "node", "-h", "skaro.invalid", "-d", "WHO", str(folder)])
    assert result.exit_code == 7, result.output
    (config,) = started
    assert config.self_node is not None
    assert (config.self_node.name, config.broker.app_config.host_data_center) == ("skaro", "WHO")
    refused = CliRunner().invoke(app, ["start", "node", str(folder)])
    assert (refused.exit_code, "--host-name" in refused.output) == (2, True)
