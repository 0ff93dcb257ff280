"""Configurations by which brokers could not reach each other, and which of them ask nodes for proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.bmq.config import ConfigError
from broker.bmq.config import load_broker_config as load
from broker.bmq.config.broker_schema import AppConfig
from broker.bmq.config.links import needs_proof
from broker.bmq.config.local_cluster import write_local_cluster
from tests.rigs.config_files import spoil

LISTENER = ("appConfig", "networkInterfaces", "tcpInterface", "listeners", 0, "tls")
TLS = {"certificateAuthority": "ca.pem", "certificate": "node.pem", "key": "node.key"}
PROVIDER = {"name": "BasicCredentialProvider"}
PORT = 30_114


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The folder of node 2 of three."""
    return write_local_cluster(tmp_path, 3, "127.0.0.1", PORT)[1]


def endpoint(index: int, clusters: str = "myClusters") -> tuple[str | int, ...]:
    return (clusters, 0, "nodes", index, "transport", "tcp", "tls")


def secure(folder: Path) -> None:
    """Have all nodes of the cluster listen for TLS."""
    spoil(folder, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=TLS)
    spoil(folder, "bmqbrkrcfg.json", *LISTENER, value=True)
    for index in range(3):
        spoil(folder, "clusters.json", *endpoint(index), value=True)


def refused(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as failure:
        load(folder)
    return failure.value


def test_all_nodes_listen_for_tls(node: Path) -> None:
    secure(node)
    config = load(node)
    assert config.cluster is not None
    assert [each.tls for each in config.cluster.nodes] == [True] * 3


def test_tls_towards_others_needs_an_authority_to_trust(node: Path) -> None:
    spoil(node, "clusters.json", *endpoint(0), value=True)
    failure = refused(node)
    assert failure.json_path == "$.myClusters[0].nodes[0].transport.tcp.tls"
    assert "trusts no certificate authority" in failure.reason


@pytest.mark.parametrize(("listens", "reason"), [(True, "speaks TLS"), (False, "does not speak TLS")])
def test_a_node_is_dialed_as_it_listens(node: Path, listens: bool, reason: str) -> None:
    secure(node)
    spoil(node, "bmqbrkrcfg.json", *LISTENER, value=listens)
    spoil(node, "clusters.json", *endpoint(1), value=not listens)
    failure = refused(node)
    assert failure.json_path == "$.myClusters[0].nodes[1].transport.tcp.tls"
    assert f"this node's listener on port {PORT + 1} {reason}: the other nodes could not reach it" in failure.reason


def test_node_without_anonymous_access_needs_credentials_itself(node: Path) -> None:
    at = ("appConfig", "authentication", "anonymousCredential")
    spoil(node, "bmqbrkrcfg.json", *at, value={"disallow": {}})
    failure = refused(node)
    assert failure.json_path == "$.appConfig.authentication.anonymousCredential.disallow"
    assert "credentialProvider" in failure.remedy
    spoil(node, "bmqbrkrcfg.json", "appConfig", "authentication", "credentialProvider", value=PROVIDER)
    load(node)


@pytest.mark.parametrize(("name", "reason"), [("", "is empty"), ("node1", "is 'node1', as another node's is")])
def test_nodes_that_prove_who_they_are_have_names_of_their_own(node: Path, name: str, reason: str) -> None:
    spoil(node, "clusters.json", "myClusters", 0, "nodes", 2, "name", value=name)
    load(node)
    spoil(node, "bmqbrkrcfg.json", "appConfig", "authentication", "credentialProvider", value=PROVIDER)
    failure = refused(node)
    assert (failure.json_path, failure.reason) == ("$.myClusters[0].nodes[2].name", reason)


def test_a_node_alone_is_dialed_by_nobody(tmp_path: Path) -> None:
    (node,) = write_local_cluster(tmp_path, 1, "127.0.0.1", PORT)
    spoil(node, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=TLS)
    spoil(node, "bmqbrkrcfg.json", *LISTENER, value=True)
    spoil(node, "bmqbrkrcfg.json", "appConfig", "authentication", "anonymousCredential", value={"disallow": {}})
    load(node)


@pytest.mark.parametrize("own_file", [True, False])
def test_a_proxy_needs_an_authority_too(node: Path, own_file: bool) -> None:
    (cluster,) = json.loads((node / "clusters.json").read_text())["myClusters"]
    definition = {"name": "above", "nodes": cluster["nodes"]}
    # A proxy listens elsewhere.
    for each in definition["nodes"]:
        each["transport"]["tcp"]["endpoint"] = f"tcp://127.0.0.1:{40_000 + each['id']}"
    definition["nodes"][2]["transport"]["tcp"]["tls"] = True
    (node / "clusters.json").write_text(json.dumps({} if own_file else {"proxyClusters": [definition]}))
    if own_file:
        (node / "proxyclusters").mkdir()
        (node / "proxyclusters" / "above.json").write_text(json.dumps(definition))
    failure = refused(node)
    place = "$" if own_file else "$.proxyClusters[0]"
    assert failure.json_path == f"{place}.nodes[2].transport.tcp.tls"
    assert failure.file == str(node / ("proxyclusters/above.json" if own_file else "clusters.json"))
    spoil(node, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=TLS)
    load(node)


@pytest.mark.parametrize(
    ("members", "tls", "expected"),
    [
        ({}, False, False),
        ({}, True, False),
        ({"tlsConfig": TLS}, True, False),
        ({"tlsConfig": TLS | {"clientCertificate": "OPTIONAL"}}, True, True),
        ({"tlsConfig": TLS | {"clientCertificate": "REQUIRED"}}, True, True),
        ({"tlsConfig": TLS | {"clientCertificate": "REQUIRED"}}, False, False),
        ({"authentication": {"credentialProvider": PROVIDER}}, False, True),
        ({"authentication": {"anonymousCredential": {"disallow": {}}}}, False, True),
        (
            {"authentication": {"anonymousCredential": {"credential": {"mechanism": "BASIC", "identity": "a:b"}}}},
            False,
            False,
        ),
    ],
)
def test_which_clusters_ask_for_proof(members: dict[str, Any], tls: bool, expected: bool) -> None:
    app = {"networkInterfaces": {"tcpInterface": {"port": 1}}} | members
    assert needs_proof(AppConfig.model_validate_json(json.dumps(app)), tls=tls) is expected
