"""The configuration that needs no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.bmq.config import default_config

DOMAINS = {
    "bmq.test.mem.priority": ("priority", "in_memory", "eventual"),
    "bmq.test.mem.fanout": ("fanout", "in_memory", "eventual"),
    "bmq.test.mem.broadcast": ("broadcast", "in_memory", "eventual"),
    "bmq.test.persistent.priority": ("priority", "file_backed", "eventual"),
    "bmq.test.persistent.priority.sc": ("priority", "file_backed", "strong"),
    "bmq.test.persistent.fanout": ("fanout", "file_backed", "eventual"),
    "bmq.test.persistent.fanout.sc": ("fanout", "file_backed", "strong"),
    "bmq.test.mmap.priority": ("priority", "file_backed", "eventual"),
    "bmq.test.mmap.priority.sc": ("priority", "file_backed", "strong"),
    "bmq.test.mmap.fanout": ("fanout", "file_backed", "eventual"),
    "bmq.test.mmap.fanout.sc": ("fanout", "file_backed", "strong"),
    "bmq.test.mmap.broadcast": ("broadcast", "in_memory", "eventual"),
}


def test_one_node_on_the_loopback() -> None:
    config = default_config()
    assert [(listener.address, listener.port) for listener in config.listeners] == [("127.0.0.1", 30114)]
    assert config.cluster is not None
    assert [node.id for node in config.cluster.nodes] == [0]
    assert config.self_node == config.cluster.nodes[0]
    assert config.cluster.partition_config.num_partitions == 1


def test_the_sample_domains() -> None:
    config = default_config()
    resolved = config.all_domains()
    assert set(resolved) == set(DOMAINS)
    for name, (mode, storage, consistency) in DOMAINS.items():
        domain = resolved[name]
        assert config.cluster is not None
        assert (domain.name, domain.cluster) == (name, config.cluster.name)
        assert getattr(domain.parameters.mode, mode) is not None
        assert getattr(domain.parameters.storage.config, storage) is not None
        assert getattr(domain.parameters.consistency, consistency) is not None
        if domain.parameters.mode.fanout is not None:
            assert domain.parameters.mode.fanout.app_ids == ("foo", "bar", "baz")
    assert config.resolve_domain("bmq.other") is None


@pytest.mark.parametrize(
    ("host", "endpoint_host"), [("0.0.0.0", "localhost"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1")]
)
def test_one_node_moves_with_its_listener(host: str, endpoint_host: str) -> None:
    config = default_config(data_dir=Path("first")).changed(host=host, port=4000, data_dir=Path("second"))
    assert [(listener.address, listener.port) for listener in config.listeners] == [(host, 4000)]
    node, cluster = config.self_node, config.cluster
    assert node is not None
    assert cluster is not None
    assert (node.host, node.port) == (endpoint_host, 4000)
    assert Path(cluster.partition_config.location) == Path("second")


def test_changing_nothing_changes_nothing() -> None:
    config = default_config("127.0.0.2", 4001, Path("data"))
    same = config.changed()
    assert (same.broker, same.clusters) == (config.broker, config.clusters)
