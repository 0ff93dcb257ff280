"""Assignment of primaries to partitions, and of queues to partitions and keys (source: mqbc::ClusterUtil)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.ledger import app_infos
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control.messages import AppIdInfo, PartitionPrimaryInfo, QueueInfo
from formats.bmq.disk.keys import DEFAULT_APP_KEY, derive_key
from formats.bmq.disk.numbers import LEASE_ID_MAX

__all__ = ["assign_primaries", "new_app_infos", "place"]


def assign_primaries(
    partition_count: int,
    known: Mapping[int, PartitionPrimaryInfo],
    leases: Mapping[int, int],
    stays: Callable[[PartitionPrimaryInfo], bool],
    candidates: Iterable[int],
) -> tuple[PartitionPrimaryInfo, ...]:
    """Assign every partition's primary: the current one, if it `stays`, else the candidate with the fewest partitions.

    A new one has a lease id above the last, which is `known` or, from the partition's files, in `leases`. A partition
    whose last lease is `LEASE_ID_MAX` stays as it is.
    """
    infos = {}
    vacant = []
    for partition_id in range(partition_count):
        info = known.get(partition_id)
        if info is not None and stays(info):
            infos[partition_id] = info
        else:
            vacant.append(partition_id)
    partitions = Counter(dict.fromkeys(candidates, 0))
    for info in infos.values():
        if info.primary_node_id in partitions:
            partitions[info.primary_node_id] += 1
    for partition_id in vacant:
        info = known.get(partition_id)
        last = max(info.primary_lease_id if info else 0, leases.get(partition_id, 0))
        if info is not None and last >= LEASE_ID_MAX:
            infos[partition_id] = info
            continue
        node_id = min(partitions, key=lambda candidate: (partitions[candidate], candidate))
        partitions[node_id] += 1
        lease_id = min(last + 1, LEASE_ID_MAX)
        infos[partition_id] = PartitionPrimaryInfo(
            partition_id=partition_id, primary_node_id=node_id, primary_lease_id=lease_id
        )
    return tuple(infos[partition_id] for partition_id in range(partition_count))


def place(
    uri: str, config: DomainConfig, salt: int, taken: set[bytes], counts: Mapping[int, int], has_primary: set[int]
) -> QueueInfo:
    """Place a new queue in the partition with the fewest queues, preferring those with a primary."""
    partition_id = min(counts, key=lambda each: (each not in has_primary, counts[each], each))
    return QueueInfo(
        uri=uri,
        key=derive_key(uri, salt, taken),
        partition_id=partition_id,
        app_ids=new_app_infos(config.queue_app_ids, salt, ()),
    )


def new_app_infos(app_ids: Iterable[str], salt: int, taken: Iterable[bytes]) -> tuple[AppIdInfo, ...]:
    keys = set(taken)
    apps = []
    for app_id in app_ids:
        key = DEFAULT_APP_KEY if app_id == DEFAULT_APP_ID else derive_key(app_id, salt, keys)
        keys.add(key)
        apps.append((app_id, key))
    return app_infos(apps)
