"""Contents of the partitions' files (source: mqbc::StorageUtil, mqbs::FileStorePrintUtil)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.bmq.admin.answers.results import (
    ActiveFileSet,
    ClusterStorageSummary,
    FileInfo,
    FileSetInfo,
    FileStore,
    FileStoreSummary,
    StorageContent,
    StorageQueueInfo,
    Success,
)
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.queue import Full, Queue
from formats.bmq.disk.data import data_record_size
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.uri import parse_uri

__all__ = [
    "NO_PARTITION",
    "domain_storages",
    "primary_elsewhere",
    "queue_storage",
    "roll_over",
    "set_available",
    "storage_summary",
]

ALL_PARTITIONS = -1

# mqbs::DataStore::k_INVALID_PARTITION_ID
NO_PARTITION = -1


def find_partition(context: CommandContext, partition_id: int) -> StoredPartition:
    """Return a partition by its number in a command. Raises `Failed` if there is none."""
    count = len(context.node.partitions)
    if partition_id >= count:
        raise Failed(f"Too high partitionId value: '{partition_id}'")
    if partition_id < 0:
        raise Failed(f"Too low partitionId value: '{partition_id}'")
    return context.node.partitions[partition_id]


def storage_summary(context: CommandContext, partition_id: int | None = None) -> ClusterStorageSummary:
    partitions = context.node.partitions
    chosen = sorted(partitions) if partition_id is None else [find_partition(context, partition_id).partition_id]
    stores = tuple(FileStore(each, "open", _file_store(context, partitions[each])) for each in chosen)
    return ClusterStorageSummary(context.environment.storage_location, stores)


def _file_store(context: CommandContext, partition: StoredPartition) -> FileStoreSummary:
    files = partition.files
    copied = context.node.role.copied(partition.partition_id)
    if copied is None:
        queues = [
            queue for queue in context.node.queues.values() if partition_of(context, queue) == partition.partition_id
        ]
        content = _content(context, queues)
        sizes = [message.size for messages in partition.records.stores.values() for message in messages.values()]
        outstanding, outstanding_bytes = len(sizes), sum(data_record_size(0, size) for size in sizes)
        queue_count = len(partition.records.stores)
    else:
        content = _copied_content(context, partition.partition_id, copied)
        outstanding, outstanding_bytes = (sum(values) for values in zip((0, 0), *copied.values(), strict=True))
        queue_count = len(copied)
    # A confirm or deletion record counts as long as its message does.
    records = outstanding + queue_count
    active = ActiveFileSet(
        data_file=FileInfo(files.data_end, partition.room.limits.data, outstanding_bytes),
        journal_file=FileInfo(files.journal_end, partition.room.limits.journal, records * JOURNAL_RECORD_SIZE),
        qlist_file=FileInfo(files.qlist_end, partition.room.limits.qlist, files.qlist_end),
    )
    return FileStoreSummary(
        primary_node_description=_primary(context, partition.partition_id),
        primary_lease_id=partition.primary_lease_id,
        sequence_num=partition.sequence_number,
        is_available=partition.room.available,
        file_sets=(FileSetInfo(files.data.name, outstanding),),
        active_file_set=active,
        total_mapped_bytes=files.data_end + files.journal_end + files.qlist_end,
        num_outstanding_records=records,
        num_unreceipted_messages=0,
        nagle_packet_count=0,
        storage_content=content,
    )


def _primary(context: CommandContext, partition_id: int) -> str:
    if context.node.role.cluster_view() is None:
        return context.node_description
    info = context.node.ledger.state.primaries.get(partition_id)
    return "[ ** NA **, -1]" if info is None else context.describe(info.primary_node_id)


def primary_elsewhere(context: CommandContext, partition_id: int) -> str | None:
    """Name the primary of a partition that this node does not serve, as the reference does, or None."""
    if context.node.role.copied(partition_id) is None:
        return None
    if context.node.ledger.state.primaries.get(partition_id) is None:
        return "[reason: unset primary node]"
    return f" with primary node: {_primary(context, partition_id)}[reason: queue is NOT local]"


def _copied_content(
    context: CommandContext, partition_id: int, copied: Mapping[bytes, tuple[int, int]]
) -> StorageContent:
    infos = []
    for info in context.node.ledger.state.queues.values():
        if info.partition_id == partition_id:
            count, size = copied.get(info.key, (0, 0))
            infos.append(
                StorageQueueInfo(
                    queue_uri=info.uri,
                    queue_key=info.key.hex().upper(),
                    partition_id=partition_id,
                    num_messages=count,
                    num_bytes=size,
                    is_persistent=_is_persistent(context, info.uri),
                )
            )
    return StorageContent(tuple(sorted(infos, key=lambda info: -info.num_bytes)))


def _is_persistent(context: CommandContext, uri: str) -> bool:
    domain = context.node.domain(parse_uri(uri).qualified_domain)
    return domain is None or domain.config.persistent


def _content(context: CommandContext, queues: Iterable[Queue]) -> StorageContent:
    infos = sorted((queue_storage(context, queue) for queue in queues), key=lambda info: -info.num_bytes)
    return StorageContent(tuple(infos))


def partition_of(context: CommandContext, queue: Queue) -> int:
    """Return a queue's partition; -1 at a proxy."""
    info = context.node.ledger.state.queues.get(queue.uri)
    return NO_PARTITION if info is None else info.partition_id


def queue_storage(context: CommandContext, queue: Queue) -> StorageQueueInfo:
    return StorageQueueInfo(
        queue_uri=queue.uri,
        queue_key=queue.key.hex().upper(),
        partition_id=partition_of(context, queue),
        num_messages=len(queue.messages),
        num_bytes=queue.bytes,
        is_persistent=queue.config.persistent,
    )


def domain_storages(context: CommandContext, name: str) -> StorageContent:
    domain = context.node.domains.get(name)
    if domain is None:
        raise Failed(f"Unknown domain '{name}'")
    queues = (queue for queue in context.node.queues.values() if queue.config.name == domain.config.name)
    return _content(context, (queue for queue in queues if queue.messages))


def set_available(context: CommandContext, partition_id: int, *, available: bool) -> Success:
    find_partition(context, partition_id).room.set_available(available)
    return Success()


def roll_over(context: CommandContext, partition_id: int) -> Success:
    """Move one partition, or all, to new files."""
    if partition_id == ALL_PARTITIONS:
        chosen = list(context.node.partitions.values())
    else:
        chosen = [find_partition(context, partition_id)]
    failures = []
    for partition in chosen:
        if not partition.active:
            failures.append(
                f"Rollover failed on partition {partition.partition_id}: "
                "Rollover rejected: node is not primary for this partition"
            )
            continue
        try:
            partition.roll_over()
        except Full as full:
            failures.append(f"Rollover failed on partition {partition.partition_id}: {full}")
    if failures:
        raise Failed(". ".join(failures))
    return Success()
