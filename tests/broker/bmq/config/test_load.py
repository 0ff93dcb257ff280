"""The reference's files: read as they are, and every fault told in one line that names file, place and remedy."""

from __future__ import annotations

import copy
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.bmq.config import ConfigError, NodeConfig, load_broker_config, reload_clusters
from tests.broker.bmq.config.load_rig import BROKER, CLUSTERS, DOMAIN, LIMITS, write, write_broker


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "domains").mkdir()
    write_broker(tmp_path)
    write(tmp_path, "clusters.json", CLUSTERS)
    write(tmp_path, "domains/bmq.test.json", DOMAIN)
    return tmp_path


def fault(act: Callable[[], object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        act()
    told = str(caught.value)
    assert "\n" not in told
    assert caught.value.remedy
    assert told.startswith(caught.value.file)
    assert caught.value.json_path in told
    return caught.value


def test_a_directory_is_read(directory: Path) -> None:
    config = load_broker_config(directory)
    cluster, node = config.cluster, config.self_node
    assert cluster is not None
    assert node is not None
    assert (cluster.name, node.id, node.host, node.port) == ("planets", 2, "localhost", 30201)
    assert cluster.cluster_attributes.is_fsm_workflow
    assert cluster.partition_config.max_csl_file_size == 8388608
    assert cluster.elector.scouting_result_timeout_ms == 4000, "the default"
    assert config.broker.app_config.bmqconf_config.cache_ttl_seconds == 30
    assert [(listener.address, listener.port) for listener in config.listeners] == [("0.0.0.0", 30201)]


def test_domains_are_read_when_they_are_asked_for(directory: Path) -> None:
    config = load_broker_config(directory)
    domain = config.resolve_domain("bmq.test")
    assert domain is not None
    assert (domain.name, domain.cluster, domain.parameters.message_ttl) == ("bmq.test", "planets", 300)
    assert domain.parameters.mode.fanout is not None
    assert domain.parameters.mode.fanout.app_ids == ("foo", "bar")
    assert domain.parameters.mode.selected is domain.parameters.mode.fanout
    assert domain.parameters.consistency.strong is not None
    assert domain.parameters.deduplication_time_ms == 300_000
    changed = copy.deepcopy(DOMAIN)
    changed["definition"]["parameters"]["messageTtl"] = 5
    write(directory, "domains/bmq.test.json", changed)
    again = config.resolve_domain("bmq.test")
    assert again is not None
    assert again.parameters.message_ttl == 5
    assert config.all_domains() == {"bmq.test": again}


@pytest.mark.parametrize("name", ["bmq.other", "../bmqbrkrcfg", "", ".", "..", "a/b", "bmq.test\0", "bmq.test.json/"])
def test_a_domain_that_is_not_there_is_none(directory: Path, name: str) -> None:
    assert load_broker_config(directory).resolve_domain(name) is None


@pytest.mark.parametrize("name", ["x" * 251, "x" * 300, "x" * 5000, "a\0b", "..", "../domains/bmq.test", "\udce4"])
def test_a_domain_whose_name_is_no_files_name_is_none(directory: Path, name: str) -> None:
    config = load_broker_config(directory)
    assert config.resolve_domain(name) is None
    assert config.domains.read("x" * 251) is None


def test_a_folder_that_cannot_be_looked_into_is_a_fault_of_the_configuration(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_broker_config(directory)

    def fail(path: Path) -> bool:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "is_file", fail)
    told = fault(lambda: config.resolve_domain("bmq.test"))
    assert "too many open files" in str(told)


def test_one_redirection_is_followed(directory: Path) -> None:
    write(directory, "domains/old.json", {"redirect": "bmq.test"})
    write(directory, "domains/older.json", {"redirect": "old"})
    write(directory, "domains/lost.json", {"redirect": "nowhere"})
    config = load_broker_config(directory)
    domain = config.resolve_domain("old")
    assert domain is not None
    assert domain.name == "bmq.test"
    assert config.resolve_domain("lost") is None
    told = fault(lambda: config.resolve_domain("older"))
    assert (told.file, told.json_path) == (str(directory / "domains" / "old.json"), "$.redirect")


def test_without_a_cluster_the_node_is_a_proxy(directory: Path) -> None:
    definition = {"name": "planets", "nodes": CLUSTERS["myClusters"][0]["nodes"]}
    (directory / "proxyclusters").mkdir()
    write(directory, "proxyclusters/planets.json", definition)
    write(directory, "clusters.json", {"proxyClusters": [{**definition, "name": "moons"}]})
    config = load_broker_config(directory)
    assert (config.cluster, config.self_node) == (None, None)
    planets, moons = config.proxy_cluster("planets"), config.proxy_cluster("moons")
    assert planets is not None
    assert [node.port for node in planets.nodes] == [30200, 30201, 30202]
    assert moons is not None
    assert config.proxy_cluster("suns") is None


def test_clusters_to_be_a_proxy_to_are_read_again(directory: Path) -> None:
    definition = {"name": "suns", "nodes": CLUSTERS["myClusters"][0]["nodes"]}
    write(directory, "clusters.json", {})
    config = load_broker_config(directory).changed(port=4000)
    assert reload_clusters(config).clusters.proxy_clusters == ()
    (directory / "proxyclusters").mkdir()
    write(directory, "proxyclusters/suns.json", definition)
    write(directory, "clusters.json", {**CLUSTERS, "proxyClusters": [{**definition, "name": "moons"}]})
    again = reload_clusters(config)
    assert [cluster.name for cluster in again.clusters.proxy_clusters] == ["moons", "suns"]
    # To be a node of a cluster takes another start.
    assert (again.cluster, again.listeners) == (None, config.listeners)
    write(directory, "proxyclusters/suns.json", {"name": "suns"})
    assert fault(lambda: reload_clusters(config)).file == str(directory / "proxyclusters" / "suns.json")
    write(directory, "proxyclusters/suns.json", definition)
    own_port = config.changed(port=30200)
    assert "is this broker itself" in fault(lambda: reload_clusters(own_port)).reason


def test_listeners_replace_the_port(directory: Path) -> None:
    broker = copy.deepcopy(BROKER)
    listeners = [{"name": "CLIENT", "port": 30114}, {"name": "BROKER", "address": "127.0.0.1", "port": 30202}]
    broker["appConfig"]["networkInterfaces"]["tcpInterface"]["listeners"] = listeners
    write(directory, "bmqbrkrcfg.json", broker)
    config = load_broker_config(directory)
    assert [listener.port for listener in config.listeners] == [30114, 30202]
    assert config.self_node is not None
    assert config.self_node.id == 3


def test_name_of_the_host_goes_before_what_names_resolve_to(directory: Path) -> None:
    clusters = copy.deepcopy(CLUSTERS)
    nodes = clusters["myClusters"][0]["nodes"]
    for node, host in zip(nodes, ("localhost", "pod-1.pods", "pod-2.pods"), strict=True):
        node["transport"]["tcp"]["endpoint"] = f"tcp://{host}:30201"
    write(directory, "clusters.json", clusters)
    config = load_broker_config(directory)
    found = [config.changed(host_name=name).self_node for name in ("elsewhere", "pod-1.pods", "pod-2.pods")]
    assert [node and node.id for node in found] == [1, 2, 3]


def test_the_command_line_replaces_what_the_files_say(directory: Path) -> None:
    config = load_broker_config(directory).changed(
        host="127.0.0.1", port=30200, data_dir=Path("/data"), instance_id="second", log_level="WARN"
    )
    assert [(listener.address, listener.port) for listener in config.listeners] == [("127.0.0.1", 30200)]
    assert config.self_node is not None
    assert config.self_node.id == 1
    assert config.cluster is not None
    assert config.cluster.partition_config.location == "/data"
    assert config.cluster.partition_config.archive_location == "/data/archive"
    assert config.broker.app_config.broker_instance_name == "second"
    assert config.broker.task_config.log_controller.console_severity_threshold == "WARN"
    told = fault(lambda: load_broker_config(directory).changed(port=30999))
    assert (told.json_path, "port 30999" in told.reason) == ("$.myClusters[0].nodes", True)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert fault(lambda: load_broker_config(tmp_path / "none")).reason == "does not exist"
    (tmp_path / "file").touch()
    assert fault(lambda: load_broker_config(tmp_path / "file")).reason == "is not a directory"
    told = fault(lambda: load_broker_config(tmp_path))
    assert (told.file, told.reason) == (str(tmp_path / "bmqbrkrcfg.json"), "does not exist")


def test_a_file_that_cannot_be_read(directory: Path) -> None:
    (directory / "clusters.json").unlink()
    (directory / "clusters.json").mkdir()
    told = fault(lambda: load_broker_config(directory))
    assert told.reason.startswith("cannot be read: ")


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        (b'{\n  "appConfig": }\n', "line 2, column 16", "is not JSON: Expecting value"),
        (b"", "line 1, column 1", "is not JSON"),
        (b'{\n"a": "\xff"}', "line 2, column 7", "is not UTF-8"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b'{"appConfig": NaN}', "", "NaN is not a JSON number"),
        (b'{"appConfig": ' + b"9" * 5000 + b"}", "", "is not JSON"),
        (b"[]", "$", "is an array, not an object"),
    ],
)
def test_a_file_that_is_not_json(directory: Path, text: bytes, place: str, reason: str) -> None:
    (directory / "bmqbrkrcfg.json").write_bytes(text)
    told = fault(lambda: load_broker_config(directory))
    assert (told.file, told.json_path) == (str(directory / "bmqbrkrcfg.json"), place)
    assert reason in told.reason


MISSING = object()


def changed(content: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """`content` with another value, or none, at `path`."""
    content = copy.deepcopy(content)
    inner: Any = content
    for step in path[:-1]:
        inner = inner[step]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


CLUSTER = ("myClusters", 0)
TCP = ("appConfig", "networkInterfaces", "tcpInterface")
PARAMETERS = ("definition", "parameters")


@pytest.mark.parametrize(
    ("file", "path", "value", "json_path", "reason", "remedy"),
    [
        ("bmqbrkrcfg.json", (*TCP, "port"), MISSING, "$.{}.{}.{}.port", "is missing", "add it"),
        ("bmqbrkrcfg.json", (*TCP, "port"), "3e4", "$.{}.{}.{}.port", "is '3e4', not an integer", "without quotes"),
        ("bmqbrkrcfg.json", (*TCP, "port"), 65536, "$.{}.{}.{}.port", "is 65536", "use -1 to 65535"),
        ("bmqbrkrcfg.json", (*TCP, "port"), -2, "$.{}.{}.{}.port", "is -2", "use -1 to 65535"),
        ("bmqbrkrcfg.json", (*TCP, "port"), -1, "$.{}.{}.{}", "has port -1 and no listeners", "or listeners"),
        ("bmqbrkrcfg.json", (*TCP, "port"), True, "$.{}.{}.{}.port", "is true, not an integer", "write an integer"),
        (
            "bmqbrkrcfg.json",
            (*TCP, "listeners"),
            [{"name": "A", "port": 1}] * 2,
            "$.{}.{}.{}.listeners",
            "same name",
            "",
        ),
        (
            "bmqbrkrcfg.json",
            (*TCP, "listeners"),
            [{"name": "A", "port": 30201, "tls": True}],
            "$.{}.{}.{}.listeners[0].tls",
            "requires TLS",
            'name one in "tlsConfig"',
        ),
        (
            "bmqbrkrcfg.json",
            ("taskConfig", "allocatorType"),
            "FAST",
            "$.{}.{}",
            "is 'FAST'",
            "use one of 'NEWDELETE', 'COUNTING' or 'STACKTRACETEST'",
        ),
        ("bmqbrkrcfg.json", ("appConfig", "configureStream"), 1, "$.{}.{}", "is 1, not a boolean", "true or false"),
        ("bmqbrkrcfg.json", ("appConfig", "hostName"), None, "$.{}.{}", "is null, not a string", "in double quotes"),
        ("clusters.json", (*CLUSTER, "nodes"), [], "$.myClusters[0].nodes", "is empty", "fill it in"),
        ("clusters.json", (*CLUSTER, "nodes"), {}, "$.myClusters[0].nodes", "is an object, not an array", "in []"),
        ("clusters.json", (*CLUSTER, "nodes", 1, "id"), MISSING, "$.myClusters[0].nodes[1].id", "is missing", "add it"),
        (
            "clusters.json",
            (*CLUSTER, "nodes", 1, "id"),
            -1,
            "$.myClusters[0].nodes[1].id",
            "is -1",
            "use 0 to 2147483647",
        ),
        (
            "clusters.json",
            (*CLUSTER, "partitionConfig", "maxArchivedFileSets"),
            -1,
            "$.myClusters[0].partitionConfig.maxArchivedFileSets",
            "is -1",
            "use 0 to 2147483647",
        ),
        *(
            (
                "clusters.json",
                (*CLUSTER, "elector"),
                {name: least - 1},
                f"$.myClusters[0].elector.{name}",
                f"is {least - 1}",
                f"use {least} to 2147483647",
            )
            for name, least in (
                ("initialWaitTimeoutMs", 0),
                ("maxRandomWaitTimeoutMs", 0),
                ("scoutingResultTimeoutMs", 1),
                ("electionResultTimeoutMs", 1),
                ("heartbeatBroadcastPeriodMs", 1),
                ("heartbeatCheckPeriodMs", 1),
                ("heartbeatMissCount", 1),
            )
        ),
        (
            "clusters.json",
            (*CLUSTER, "nodes", 1, "id"),
            3,
            "$.myClusters[0].nodes",
            "nodes 'node1' and 'node2' both have id 3",
            "give each node an id of its own",
        ),
        (
            "clusters.json",
            (*CLUSTER, "nodes", 1, "transport"),
            {},
            "$.myClusters[0].nodes[1].transport",
            "selects 0 alternatives",
            'keep exactly one of the members "tcp"',
        ),
        (
            "clusters.json",
            (*CLUSTER, "nodes", 1, "transport", "tcp", "endpoint"),
            "localhost:30201",
            "$.myClusters[0].nodes[1].transport.tcp.endpoint",
            "is 'localhost:30201'",
            "write tcp://HOST:PORT",
        ),
        (
            "clusters.json",
            (*CLUSTER, "nodes", 1, "transport", "tcp", "endpoint"),
            "tcp://192.0.2.1:30201",
            "$.myClusters[0].nodes",
            "no node of cluster 'planets' has an endpoint on this host with port 30201",
            "add this node",
        ),
        (
            "clusters.json",
            (*CLUSTER, "clusterAttributes", "isCSLModeEnabled"),
            False,
            "$.myClusters[0].clusterAttributes",
            '"isFSMWorkflow" is true but',
            'set "isCSLModeEnabled"',
        ),
        (
            "clusters.json",
            (*CLUSTER, "masterAssignment"),
            "E_ANY",
            "$.myClusters[0].masterAssignment",
            "is 'E_ANY'",
            "'E_LEADER_IS_MASTER_ALL' or 'E_LEAST_ASSIGNED'",
        ),
        (
            "clusters.json",
            (*CLUSTER, "partitionConfig", "numPartitions"),
            0,
            "$.myClusters[0].partitionConfig.numPartitions",
            "is 0",
            "use 1 to 65536",
        ),
        (
            "clusters.json",
            ("proxyClusters",),
            [{"name": "planets", "nodes": CLUSTERS["myClusters"][0]["nodes"]}],
            "$",
            "there are two clusters 'planets'",
            "rename or remove",
        ),
        ("domains/bmq.test.json", ("definition",), MISSING, "$", "selects 0 alternatives", '"definition", "redirect"'),
        (
            "domains/bmq.test.json",
            (*PARAMETERS, "mode"),
            MISSING,
            "$.definition.parameters.mode",
            "is missing",
            "add it",
        ),
        (
            "domains/bmq.test.json",
            (*PARAMETERS, "mode"),
            {"fanout": {}, "priority": {}},
            "$.definition.parameters.mode",
            "selects 2 alternatives",
            '"fanout", "priority", "broadcast"',
        ),
        (
            "domains/bmq.test.json",
            (*PARAMETERS, "storage", "queueLimits"),
            {"messages": "x" * 500, "bytes": 1},
            "$.definition.parameters.storage.queueLimits.messages",
            "is 'xxxxx",
            "write an integer",
        ),
        (
            "domains/bmq.test.json",
            (*PARAMETERS, "storage", "domainLimits"),
            {**LIMITS, "bytesWatermarkRatio": 1.5},
            "$.definition.parameters.storage.domainLimits.bytesWatermarkRatio",
            "is 1.5",
            "use 0 to 1",
        ),
        (
            "domains/bmq.test.json",
            (*PARAMETERS, "mode"),
            {"fanout": {"appIDs": ["foo", "é" * 65_001]}},
            "$.definition.parameters.mode.fanout.appIDs[1]",
            "has 65001 characters",
            "use 65000 at most",
        ),
        (
            "domains/bmq.test.json",
            (*PARAMETERS, "mode"),
            {"fanout": {"appIDs": [str(number) for number in range(65_536)]}},
            "$.definition.parameters.mode.fanout.appIDs",
            "has 65536 members",
            "use 65535 at most",
        ),
    ],
)
def test_a_member_that_is_wrong(
    directory: Path, file: str, path: tuple[str | int, ...], value: object, json_path: str, reason: str, remedy: str
) -> None:
    content = json.loads((directory / file).read_text())
    write(directory, file, changed(content, path, value))
    told = fault(lambda: load_broker_config(directory).all_domains())
    assert (told.file, told.json_path) == (str(directory / file), json_path.format(*path))
    assert reason in told.reason
    assert remedy in told.remedy
    assert len(told.reason) < 200


def test_integers_and_booleans_may_stand_in_quotes(directory: Path) -> None:
    quoted = changed(changed(BROKER, (*TCP, "port"), "30201"), ("appConfig", "configureStream"), "true")
    quoted = changed(quoted, (*TCP, "maxConnections"), "-1")
    write(directory, "bmqbrkrcfg.json", quoted)
    broker = load_broker_config(directory).broker
    assert broker.app_config.network_interfaces.tcp_interface.port == 30201
    assert broker.app_config.network_interfaces.tcp_interface.max_connections == -1
    assert broker.app_config.configure_stream is True


def test_more_than_one_fault_is_told(directory: Path) -> None:
    broker = changed(changed(BROKER, (*TCP, "port"), MISSING), ("taskConfig", "allocatorType"), "FAST")
    write(directory, "bmqbrkrcfg.json", broker)
    found = fault(lambda: load_broker_config(directory))
    assert str(found).endswith(f"; {found.remedy} (1 more after this)")
    (other,) = found.others
    assert {found.json_path, other.json_path} == {
        "$.taskConfig.allocatorType",
        "$.appConfig.networkInterfaces.tcpInterface.port",
    }
    assert str(other) == f"{other.file}: {other.json_path}: {other.reason}; {other.remedy}"


def test_configurations_are_values(directory: Path) -> None:
    first, second = load_broker_config(directory), load_broker_config(directory)
    assert isinstance(first, NodeConfig)
    assert (first.broker, first.clusters) == (second.broker, second.clusters)
    assert hash(first.broker) == hash(second.broker)
