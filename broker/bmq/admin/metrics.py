"""Metrics of a node for Prometheus, by the reference's names and labels (source: bmqprometheus).

All are gauges, as in the reference. Names that end in `_delta`, `_avg` or `_max` cover the last minute, as in `STAT
SHOW`; times are in nanoseconds. Values that this node does not count are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from broker.bmq.admin.queue_metrics import HOST_DATA, QueueMetrics
from broker.bmq.admin.readiness import ClusterReadiness
from broker.bmq.core.cluster_view import ClusterView
from broker.bmq.node.node import Node
from broker.common.exposition import LINES_MAX, Series, label_text, metric_pieces

__all__ = ["Metrics"]

HEALTHY, UNHEALTHY = 1, 2
GLOBAL_DATA = "global-data"
SCHEME = "bmq://"


class Metrics:
    """The metrics of one node, of the `clusters` that it knows, and of its `process`."""

    def __init__(
        self,
        node: Node,
        instance: str,
        clusters: Callable[[], Iterable[ClusterReadiness]],
        process: Callable[[], Mapping[str, int]],
    ) -> None:
        self._node = node
        self._instance = instance
        self._clusters = clusters
        self._process = process
        self._queues = QueueMetrics(node, instance)

    def pieces(self) -> Iterator[bytes]:
        """Yield the text, in pieces of a few milliseconds each; a piece may be empty."""
        yield b"".join(self._of_the_process())
        yield b"".join(self._of_clusters())
        yield from self._of_domains()
        yield from self._queues.pieces()

    # -- the process and the clusters

    def _of_the_process(self) -> Iterator[bytes]:
        labels = self._host_labels()
        counts = {
            "brkr_summary_queues_count": len(self._node.queues),
            "brkr_summary_clients_count": sum(session.is_client for session in self._node.sessions.values()),
        }
        for name, value in (*self._process().items(), *counts.items()):
            yield from metric_pieces(name, (Series((labels,), (value,)),))

    def _of_clusters(self) -> Iterator[bytes]:
        clusters = list(self._clusters())
        labels = [self._health_labels(each) for each in clusters]
        values = [HEALTHY if each.is_healthy else UNHEALTHY for each in clusters]
        yield from metric_pieces("cluster_healthiness", (Series(labels, values),))
        if self._node.role.is_proxy:
            return
        view = self._node.role.cluster_view()
        whole = label_text(
            {"Cluster": self._node.identity.cluster_name, "Instance": self._instance, "DataType": GLOBAL_DATA}
        )
        if self._leads(view):
            for name, value in self._of_the_leader():
                yield from metric_pieces(name, (Series((whole,), (value,)),))
        for partition in self._node.partitions.values():
            if not partition.active:
                continue
            prefix = f"cluster_partition{partition.partition_id}_"
            for name, value in (
                ("journal_offset_bytes", partition.files.journal_end),
                ("data_offset_bytes", partition.files.data_end),
                ("sequence_number", partition.sequence_number),
            ):
                yield from metric_pieces(prefix + name, (Series((whole,), (value,)),))

    def _of_the_leader(self) -> Iterator[tuple[str, int]]:
        ledger = self._node.ledger
        limits = next(iter(self._node.partitions.values())).room.limits
        yield "cluster_partition_cfg_journal_bytes", limits.journal
        yield "cluster_partition_cfg_data_bytes", limits.data
        yield "cluster_csl_offset_bytes", ledger.end
        yield "cluster_csl_cfg_bytes", ledger.size_max

    def _leads(self, view: ClusterView | None) -> bool:
        return view is None or view.leader_node_id == view.node_id

    # -- domains

    def _of_domains(self) -> Iterator[bytes]:
        """Yield domains' metrics; they come from the leader, which knows all queues."""
        node = self._node
        if node.role.is_proxy or not self._leads(node.role.cluster_view()):
            return
        configs = {domain.config.name: domain.config for domain in node.domains.values()}
        counts = dict.fromkeys(configs, 0)
        for number, uri in enumerate(list(node.ledger.state.queues)):
            name = uri[len(SCHEME) : uri.rindex("/")]
            if name in counts:
                counts[name] += 1
            if number % LINES_MAX == LINES_MAX - 1:
                yield b""
        labels = [self._domain_labels(name) for name in configs]
        for metric, values in (
            ("domain_cfg_msgs", [config.domain_messages_max for config in configs.values()]),
            ("domain_cfg_bytes", [config.domain_bytes_max for config in configs.values()]),
            ("domain_queue_count", list(counts.values())),
        ):
            yield from metric_pieces(metric, (Series(labels, values),))

    # -- labels

    def _host_labels(self) -> str:
        return label_text({"Instance": self._instance, "DataType": HOST_DATA})

    def _health_labels(self, cluster: ClusterReadiness) -> str:
        labels = {"Cluster": cluster.name, "Instance": self._instance, "DataType": HOST_DATA}
        if cluster.upstream is None:
            return label_text({**labels, "Role": "MEMBER"})
        return label_text({**labels, "Role": "PROXY", "RemoteHost": cluster.upstream or "_none_"})

    def _domain_labels(self, name: str) -> str:
        domain, _, tier = name.partition(".~")
        cluster = self._node.identity.cluster_name
        return label_text({"Cluster": cluster, "Domain": domain, "Tier": tier, "DataType": GLOBAL_DATA})
