"""Check that a configuration has all partitions of its store: a node with fewer would hide the queues of the others.

The reference neither serves nor drains partitions beyond `numPartitions` (mqbc::ClusterState asserts that there are
none).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from broker.bmq.config import ConfigError, NodeConfig
from formats.bmq.disk.files import parse_file_name
from formats.bmq.disk.ledger import parse_ledger_file_name
from formats.bmq.stores.check_ledger import LedgerQueue, LedgerState, check_ledger
from formats.bmq.stores.validate import FileView

__all__ = ["partitions_in", "partitions_named", "too_few_partitions"]

_SHOWN_MAX = 5


def partitions_named(names: Iterable[str]) -> set[int]:
    return {file.partition_id for name in names if (file := parse_file_name(name)) is not None}


def partitions_in(folder: Path) -> set[int]:
    """Return the partitions of a store, by its files and by the queues of its ledger; none if it cannot be read."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        ledgers = [name for name in names if parse_ledger_file_name(name) is not None]
        ledger = (folder / ledgers[-1]).read_bytes() if ledgers else b""
    except OSError:
        return set()
    found = partitions_named(names)
    if ledger:
        found |= {queue.partition_id for queue in _queues_of(FileView(ledgers[-1], memoryview(ledger)))}
    return found


def _queues_of(ledger: FileView) -> Iterable[LedgerQueue]:
    checking = check_ledger(ledger)
    while True:
        try:
            next(checking)
        except StopIteration as end:
            state: LedgerState = end.value
            return state.queues.values()


def too_few_partitions(config: NodeConfig, found: Iterable[int]) -> ConfigError | None:
    """Return the fault of a configuration that lacks some of these partitions, or None."""
    cluster = config.cluster
    if cluster is None:
        return None
    count = cluster.partition_config.num_partitions
    beyond = sorted(each for each in found if each >= count)
    if not beyond:
        return None
    shown = ", ".join(map(str, beyond[:_SHOWN_MAX])) + (" and more" if len(beyond) > _SHOWN_MAX else "")
    return ConfigError(
        "built-in configuration" if config.directory is None else str(config.directory / "clusters.json"),
        "$.myClusters[0].partitionConfig.numPartitions",
        f"is {count}, but the store {cluster.partition_config.location} has partition {shown}, whose queues and "
        "messages would be hidden",
        f"set it to {beyond[-1] + 1} or more; to have fewer partitions, copy the queues to a new store",
    )
