"""Opening a store: find each partition's newest whole set of files, check it, recover it; or make an empty one.

| files found                                   | what is done                                         |
| --- | --- |
| none                                          | an empty set is made                                 |
| a set whose rollover never finished, an older | the unfinished set is removed, the older one is used |
| one or more whole sets                        | the newest is used                                   |
| a set with faults of severity error           | `StoreDamaged`: the node does not start              |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice

from broker.core.clock import Now
from broker.core.shard import Shard
from broker.ports.files import Directory
from broker.store.partition_files import PartitionFiles, PartitionLimits
from broker.store.recovery import Recovered, recover
from formats.disk.faults import Fault, Severity
from formats.disk.files import FileSet, FileType, JournalFileHeader, group_file_sets, open_file
from formats.disk.validate import FileView, validate_file_set
from formats.errors import FormatError

__all__ = ["StoreDamaged", "open_shards"]

log = logging.getLogger("broker.opening")

FAULTS_SHOWN = 10


class StoreDamaged(Exception):
    """A store that must not be served as it is; the text says what was found and how to go on."""

    def __init__(self, path: str, faults: list[Fault], more: bool) -> None:
        lines = [f"{path}: the store is damaged, the node does not start"]
        lines += [f"  {fault.file} at offset {fault.offset}: {fault.code}: {fault.reason}" for fault in faults]
        if more:
            lines.append("  and more")
        lines.append(f"  {faults[0].advice}")
        lines.append(f"  See all with: bmqctl journal validate {path}")
        lines.append("  To start without these messages, move the files named above to another folder.")
        super().__init__("\n".join(lines))
        self.faults = faults


def open_shards(
    directory: Directory,
    num_partitions: int,
    node_id: int,
    limits: PartitionLimits,
    now: Now,
    make_timestamp: Callable[[str], str],
) -> list[tuple[Shard, Recovered]]:
    """All partitions of the store. `StoreDamaged` if one of them must not be served."""
    sets = group_file_sets(directory.names())
    out = []
    for partition_id in range(num_partitions):
        own = [file_set for file_set in sets if file_set.partition_id == partition_id]
        files, recovered = _open(directory, own, partition_id, limits, make_timestamp)
        shard = Shard(partition_id, node_id, files, limits, now, make_timestamp)
        shard.primary_lease_id = recovered.primary_lease_id
        out.append((shard, recovered))
        log.info(
            "partition %d: %d records, %d queues, %d messages outstanding",
            partition_id,
            recovered.records,
            len(recovered.queues),
            len(recovered.messages),
        )
    return out


def _open(
    directory: Directory,
    sets: list[FileSet],
    partition_id: int,
    limits: PartitionLimits,
    make_timestamp: Callable[[str], str],
) -> tuple[PartitionFiles, Recovered]:
    whole = [file_set for file_set in sets if file_set.complete]
    while whole:
        newest = whole.pop()
        files = PartitionFiles.open(directory, newest, limits)
        if whole and _unfinished(files):
            log.warning("%s: its rollover was never finished; the set before it is used", newest.journal)
            names = [files.journal.name, files.data.name, files.qlist.name]
            for file in (files.journal, files.data, files.qlist):
                file.close()
            for name in names:
                directory.remove(name)
            continue
        return files, _recover(directory, files)
    created = PartitionFiles.create(directory, partition_id, make_timestamp(f"bmq_{partition_id}."), limits)
    if created is None:
        raise OSError(28, "No space left on device", directory.path)
    return created, Recovered({}, [], 0, 0, 0, 0)


def _unfinished(files: PartitionFiles) -> bool:
    """Whether the set was being rolled into when the node died: it does not name its first sync point."""
    try:
        header = open_file(files.journal.buffer, FileType.JOURNAL).header
    except FormatError:
        return False
    return isinstance(header, JournalFileHeader) and not header.first_sync_point_after_rollover_offset_words


def _recover(directory: Directory, files: PartitionFiles) -> Recovered:
    views = [FileView(file.name, file.buffer) for file in (files.journal, files.data, files.qlist)]
    found = (fault for fault in validate_file_set(*views) if fault.severity is Severity.ERROR)
    errors = list(islice(found, FAULTS_SHOWN + 1))
    if errors:
        raise StoreDamaged(directory.path, errors[:FAULTS_SHOWN], len(errors) > FAULTS_SHOWN)
    recovered = recover(files)
    if recovered.bytes_cut:
        log.warning("%s: %d bytes behind the last whole record were cut off", files.journal.name, recovered.bytes_cut)
    return recovered
