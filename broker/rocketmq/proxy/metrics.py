"""Metrics of a proxy for Prometheus, by the original's names and labels (source: ProxyMetricsManager)."""

from __future__ import annotations

from collections.abc import Iterator

from broker.common.exposition import Series, label_text, metric_pieces
from broker.rocketmq.proxy.cluster import Cluster

__all__ = ["proxy_pieces"]


def proxy_pieces(cluster: Cluster, name: str) -> Iterator[bytes]:
    common = {"node_type": "proxy", "node_id": name, "proxy_mode": "cluster"}
    yield from metric_pieces("rocketmq_proxy_up", (Series((label_text(common),), (1,)),))
    # Unknown to the original.
    yield from metric_pieces("rocketmq_proxy_known_brokers", (Series((label_text(common),), (len(cluster.names),)),))
