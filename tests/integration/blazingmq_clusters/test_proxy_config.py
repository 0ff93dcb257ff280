"""Proxies by the reference's configuration: which cluster has a domain, and clusters that proxies stand for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import blazingmq
import pytest

from bmqctl.testing import NodeProcess, free_port
from formats.bmq.control import ber
from formats.bmq.control.messages import BrokerResponse, ClientIdentity, ClientType, GuidInfo, NegotiationMessage
from formats.bmq.wire.event import build_schema_event
from tests.rigs.config_files import spoil, write_config, write_proxy_config
from tests.rigs.official import Client, Connect, confirm
from tests.rigs.raw import Raw

ENDPOINT = ("proxyClusters", 0, "nodes", 0, "transport", "tcp", "endpoint")


class Planted:
    """A node, a proxy to it that stands for cluster `ours`, and a proxy to that."""

    def __init__(self, folder: Path) -> None:
        ports = [free_port() for _ in range(3)]
        configs = [
            write_config(folder / "node-etc"),
            write_proxy_config(folder / "near-etc", [ports[0]], virtual={"ours": 5}),
            write_proxy_config(folder / "far-etc", [ports[1]], "ours"),
        ]
        spoil(configs[2], "domains/shop.ticks.json", "definition", "location", value="elsewhere")
        self.node, self.near, self.far = (
            NodeProcess(folder / config.name.partition("-")[0], config_dir=config, port=port)
            for config, port in zip(configs, ports, strict=True)
        )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    found = Planted(tmp_path_factory.mktemp("planted"))
    with found.node, found.near, found.far:
        for proxy in (found.near, found.far):
            proxy.wait_for("is available")
        yield found


def test_a_proxy_learns_of_a_cluster_when_a_domain_is_wanted_that_is_there(tmp_path: Path) -> None:
    uri = "bmq://shop.orders/learned"
    config = write_proxy_config(tmp_path / "etc", [free_port()])
    clusters, domain = config / "clusters.json", config / "domains" / "shop.orders.json"
    told, known = clusters.read_text(), domain.read_text()
    clusters.write_text("{}")
    domain.unlink()
    with (
        NodeProcess(tmp_path / "node", config_dir=write_config(tmp_path / "node-etc"), port=free_port()) as node,
        NodeProcess(tmp_path / "proxy", config_dir=config, port=free_port()) as proxy,
    ):
        proxy.wait_for("no cluster is known yet")
        with Client(proxy.uri) as client:
            for text in (None, known):
                if text is not None:
                    domain.write_text(text)
                with pytest.raises(blazingmq.Error):
                    client.open(uri, write=True)
            proxy.wait_for("Cluster (mine): unknown")
            clusters.write_text("{")
            with pytest.raises(blazingmq.Error):
                client.open(uri, write=True)
            clusters.write_text(told)
            spoil(config, "clusters.json", *ENDPOINT, value=f"tcp://127.0.0.1:{node.port}")
            client.open(uri, write=True)
            client.post_all(uri, [b"one"])
            with Client(node.uri) as reader:
                reader.open(uri, read=True)
                reader.wait_for_messages(1, uri)
                assert reader.payloads(uri) == [b"one"]
        # Once known, a cluster is not looked for again.
        clusters.unlink()
        with Client(proxy.uri) as client:
            client.open("bmq://shop.prices/learned", write=True)
        assert proxy.log.count("definition loaded from") == 1


def introduced(proxy: NodeProcess, cluster_name: str) -> ClientIdentity:
    """Return the identity that a proxy sends to a proxy of that cluster."""
    with Raw(proxy, identified=False) as raw:
        me = ClientIdentity(
            protocol_version=1,
            client_type=ClientType.TCPBROKER,
            features="PROTOCOL_ENCODING:BER",
            cluster_name=cluster_name,
            cluster_node_id=-1,
            guid_info=GuidInfo(),
        )
        raw.send(build_schema_event(ber.encode(NegotiationMessage(choice=me))))
        _, body = raw.event()
        answer = ber.decode(NegotiationMessage, body).choice
        assert isinstance(answer, BrokerResponse)
        assert answer.result.code == 0
        return answer.broker_identity


def test_messages_go_through_a_virtual_cluster(planted: Planted, connect: Connect) -> None:
    posts, reads = connect(planted.far), connect(planted.node)
    uri = "bmq://shop.orders/through"
    posts.open(uri, write=True)
    reads.open(uri, read=True)
    posts.post_all(uri, [b"one", b"two"])
    confirm(reads.wait_for_messages(2))
    assert reads.payloads() == [b"one", b"two"]


def test_a_redirected_domain_is_another_of_the_cluster(planted: Planted, connect: Connect) -> None:
    posts, reads = connect(planted.far), connect(planted.node)
    posts.open("bmq://shop.old/redirected", write=True)
    reads.open("bmq://shop.orders/redirected", read=True)
    posts.post_all("bmq://shop.old/redirected", [b"one"])
    confirm(reads.wait_for_messages(1))


@pytest.mark.parametrize(
    ("domain", "told"),
    [("shop.ticks", "'elsewhere', which this broker does not know"), ("shop.nothing", "is not configured")],
)
def test_a_domain_of_no_known_cluster_is_refused(planted: Planted, connect: Connect, domain: str, told: str) -> None:
    client = connect(planted.far)
    with pytest.raises(blazingmq.Error, match=told):
        client.open(f"bmq://{domain}/q", write=True)


def test_identity_of_a_proxy_in_a_cluster(planted: Planted) -> None:
    virtual = introduced(planted.near, "ours")
    assert (virtual.cluster_name, virtual.cluster_node_id) == ("ours", 5)
    assert "BROADCAST_TO_PROXIES" not in virtual.features
    none = introduced(planted.far, "ours")
    assert (none.cluster_name, none.cluster_node_id) == ("ours", -1)
    node = introduced(planted.node, "mine")
    assert (node.cluster_name, node.cluster_node_id) == ("mine", 0)
    assert "BROADCAST_TO_PROXIES" in node.features


def test_the_log_tells_which_node_is_in_use(planted: Planted) -> None:
    assert planted.near.wait_for("Cluster (mine): new leader: [up1, 1], leader status: ACTIVE")
    assert planted.far.wait_for("Cluster (ours): new leader: [up1, 1], leader status: ACTIVE")
