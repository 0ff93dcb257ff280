"""Opening of a store: find each partition's newest whole set of files, check it, recover it; or make an empty one.

Sets of files are examined from the newest on:

| what the set is | what is done |
| --- | --- |
| whole, in use | used; those older that its rollover replaced, archived |
| part or whole, its rollover unfinished, and an older | removed; the next older is looked at |
| part or whole, was being received from a primary, and an older | removed; the next older is looked at |
| part or whole, with nothing in it yet | removed; the next older is looked at |
| part, its header never having reached the disk, and an older | removed; the next older is looked at |
| in use, its QLIST missing, the ledger knows its queues | QLIST is made again (`opening_queues`); used |
| in use, a file of it missing | `StoreDamaged`: the node does not start |
| whole, with faults of severity error | `StoreDamaged` |
| there is none | an empty set is made |

A node of a cluster that `heals` starts nevertheless: it notes the damage (`broker.bmq.store.damage`), sets aside all
files of the partition, or the ledger's, and makes an empty set. The other nodes then decide its contents. Files under
such a note are never relied upon: a process that died in between may have left any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice

from broker.bmq.assembly.opening_queues import with_qlist
from broker.bmq.core.alarms import alarm
from broker.bmq.core.ledger import Ledger
from broker.bmq.core.messages import Full
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.damage import LEDGER_NOTE, Damage, partition_note
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits, readable, written_end
from broker.bmq.store.recovery import Recovered, RecoveredQueue, recover
from broker.common.clock import Now
from broker.common.files import Directory, StoreFile
from formats.bmq.control.messages import QueueInfo
from formats.bmq.disk.files import (
    MAGIC_SIZE,
    FileSet,
    FileType,
    JournalFileHeader,
    OpenedFile,
    group_file_sets,
    initial_bytes,
    open_file,
    parse_file_name,
)
from formats.bmq.disk.journal import RecordType, scan, select
from formats.bmq.disk.ledger import parse_ledger_file_name
from formats.bmq.stores.faults import Fault, Severity, fault
from formats.bmq.stores.recover import iter_qlist, journal_extent
from formats.bmq.stores.validate import FileView, validate_file_set, validate_ledger
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["StoreDamaged", "open_ledger", "open_partitions"]

log = logging.getLogger("broker.opening")

FAULTS_SHOWN = 10

SET = (FileType.JOURNAL, FileType.DATA, FileType.QLIST)

# The longest headers that are written, those of a journal. The first record of any file extends beyond.
HEADERS_WRITTEN_MAX = max(len(initial_bytes(file_type, 0)) for file_type in SET)

# Keys of 40 bits that differ in at most this many bits count as one corrupted key: one random pair in ten million does.
ROTTEN_BITS_MAX = 4


class StoreDamaged(Exception):
    """A store that must not be served; the text has the faults and the remedy."""

    def __init__(self, path: str, faults: list[Fault], more: bool) -> None:
        self.faults = faults
        self.found = [f"  {fault.file} at offset {fault.offset}: {fault.code}: {fault.reason}" for fault in faults]
        if more:
            self.found.append("  and more")
        lines = [f"{path}: the store is damaged; the node does not start", *self.found]
        lines.append(f"  {faults[0].advice}")
        lines.append(f"  See all with: bmqctl journal validate {path}")
        lines.append(f"  Recover the undamaged part with: bmqctl journal repair {path} --out DIRECTORY")
        lines.append("  To start without these messages, move the files named above to another folder.")
        super().__init__("\n".join(lines))


class _StillDamaged(StoreDamaged):
    """The store of an earlier process that other nodes did not finish healing."""

    def __init__(self, directory: Directory, damage: Damage) -> None:
        Exception.__init__(
            self,
            f"{directory.path}: the store was damaged and has not been healed; the node does not start alone\n"
            f"  {damage.name} lists the damage and the locations of the damaged files.\n"
            f"  Restore their undamaged part (bmqctl journal repair), and remove {damage.name}.",
        )
        self.faults: list[Fault] = []
        self.found = ["  it was damaged before and has not been healed since"]


def open_partitions(
    directory: Directory,
    num_partitions: int,
    node_id: int,
    limits: PartitionLimits,
    now: Now,
    make_timestamp: Callable[[str], str],
    *,
    outlives_power: bool = False,
    heals: bool = False,
) -> list[tuple[StoredPartition, Recovered]]:
    """Open all partitions of the store; for `outlives_power` see `StoredPartition`.

    Raises `StoreDamaged` for a partition that must not be served, unless this node `heals` from others.
    """
    out = []
    for partition_id in range(num_partitions):
        damage = Damage(directory, partition_note(partition_id))
        try:
            files, recovered = _open(
                directory, partition_id, limits, make_timestamp, damage, outlives_power=outlives_power, heals=heals
            )
        except StoreDamaged as error:
            if not heals:
                raise
            found = error.found
            _set_aside(directory, damage, f"partition {partition_id}", _files_of(directory, partition_id), found)
            files, recovered = _create_again(
                directory, partition_id, limits, make_timestamp, outlives_power=outlives_power
            )
        partition = StoredPartition(
            partition_id, node_id, files, limits, now, make_timestamp, outlives_power=outlives_power, damage=damage
        )
        partition.records.primary_lease_id = recovered.primary_lease_id
        out.append((partition, recovered))
        log.info(
            "partition %d: %d records, %d queues, %d messages outstanding",
            partition_id,
            recovered.records,
            len(recovered.queues),
            len(recovered.messages),
        )
    return out


def open_ledger(
    directory: Directory,
    size_max: int,
    now: Now,
    make_timestamp: Callable[[str], str],
    opened: list[tuple[StoredPartition, Recovered]],
    *,
    outlives_power: bool = False,
    heals: bool = False,
) -> Ledger:
    """Open the cluster-state ledger if there is one. Raises `StoreDamaged` if it cannot be read.

    Also raises it if the ledger, which has checksums, has a queue of the `opened` partitions under another name than
    QLIST, which has none. A node that `heals` replaces such a partition with an empty one.
    """
    damage = Damage(directory, LEDGER_NOTE)
    ledger = Ledger(directory, size_max, now, make_timestamp, damage, outlives_power=outlives_power)
    refused = _read_ledger(ledger)
    if refused is not None:
        ledger.let_go()
        if not heals:
            raise refused
        names = [name for name in directory.names() if parse_ledger_file_name(name)]
        _set_aside(directory, damage, "the cluster-state ledger", names, refused.found)
        ledger = Ledger(directory, size_max, now, make_timestamp, damage, outlives_power=outlives_power)
    for index, (partition, recovered) in enumerate(opened):
        mismatch = _mismatch(partition, recovered, ledger)
        if mismatch is None:
            continue
        refused = StoreDamaged(directory.path, [mismatch], False)
        _let_go(partition.files)
        if not heals:
            raise refused
        number = partition.partition_id
        _set_aside(directory, partition.damage, f"partition {number}", _files_of(directory, number), refused.found)
        partition.records.files, empty = _create_again(
            directory, number, partition.room.limits, make_timestamp, outlives_power=partition.sets.outlives_power
        )
        partition.records.primary_lease_id = 0
        opened[index] = partition, empty
    return ledger


def _read_ledger(ledger: Ledger) -> StoreDamaged | None:
    directory = ledger.directory
    try:
        found = ledger.recover()
    except FormatError as error:
        assert ledger.file is not None
        view = FileView(ledger.file.name, ledger.file.buffer)
        reason = f"{error.path}: {error.reason}"
        faults = list(islice(validate_ledger(view), FAULTS_SHOWN))
        return StoreDamaged(directory.path, faults or [fault("ledger-record", view.name, error.offset, reason)], False)
    return _StillDamaged(directory, ledger.damage) if found and ledger.damage.is_there else None


def _mismatch(partition: StoredPartition, recovered: Recovered, ledger: Ledger) -> Fault | None:
    known = {info.key: info for info in ledger.state.queues.values()}
    for queue in recovered.queues.values():
        info = known.get(queue.key)
        if info is None:
            continue
        for here, there in _names(queue, info):
            if here != there:
                reason = f"queue {queue.key.hex().upper()}: {here} here, {there} in the ledger"
                return fault("qlist-mismatch", partition.files.qlist.name, _offset_of(queue, partition.files), reason)
    return None


# -- damage for other nodes to heal


def _files_of(directory: Directory, partition_id: int) -> list[str]:
    parsed = ((name, parse_file_name(name)) for name in directory.names())
    return [name for name, file in parsed if file is not None and file.partition_id == partition_id]


def _set_aside(directory: Directory, damage: Damage, part: str, names: list[str], found: list[str]) -> None:
    text = "\n".join([f"{directory.path}: {part} is damaged", *found])
    if not (damage.is_there or damage.note(text + "\n")):
        raise Full(
            "STORAGE_FAILURE", f"{text}\n  and there is no disk space to record that: free some, and start the node"
        )
    moved = damage.set_aside(names)
    lines = [
        f"{text}",
        "  The other nodes heal it. Until then this node does not count towards a quorum of nodes with sound data.",
        *(f"  Set aside: {path}" for path in moved),
        f"  {damage.name} records this; once it is removed, the node is healed and the files set aside can be deleted.",
        "  If too many of the other nodes are lost for good, stop the node, recover the undamaged part",
        f"  (bmqctl journal repair), restore it, and remove {damage.name}.",
    ]
    alarm(log, "RECOVERY", "\n".join(lines))


def _let_go(files: PartitionFiles) -> None:
    for file in (files.journal, files.data, files.qlist):
        file.close()


def _create_again(
    directory: Directory,
    partition_id: int,
    limits: PartitionLimits,
    make_timestamp: Callable[[str], str],
    *,
    outlives_power: bool,
) -> tuple[PartitionFiles, Recovered]:
    try:
        return _create(directory, partition_id, limits, make_timestamp, outlives_power=outlives_power)
    except OSError as error:
        problem = f"{directory.path}: no new files of partition {partition_id}: {error.strerror}"
        raise Full("STORAGE_FAILURE", problem) from None


def _create(
    directory: Directory,
    partition_id: int,
    limits: PartitionLimits,
    make_timestamp: Callable[[str], str],
    *,
    outlives_power: bool,
) -> tuple[PartitionFiles, Recovered]:
    created = PartitionFiles.make(directory, partition_id, make_timestamp(f"bmq_{partition_id}."), limits)
    if outlives_power:
        # With records in one file, another missing file counts as damage.
        directory.flush()
    return created, Recovered({}, [], 0, 0, 0, 0)


# -- existing files


def _names(queue: RecoveredQueue, info: QueueInfo) -> Iterator[tuple[str, str]]:
    """Yield corresponding values of QLIST and the ledger: the queue's URI, each app's id and key.

    An app that was removed and added again has another key in the ledger, which may not be in QLIST yet. Keys are
    random: two keys of one app that differ in a few bits only are the same key with corrupted bits.
    """
    yield queue.uri, info.uri
    ids = {app.app_key: app.app_id for app in info.app_ids}
    keys = {app.app_id: app.app_key for app in info.app_ids}
    for app in queue.apps:
        yield app.app_id, ids.get(app.app_key, app.app_id)
        key = keys.get(app.app_id, app.app_key)
        if (int.from_bytes(key, "big") ^ int.from_bytes(app.app_key, "big")).bit_count() <= ROTTEN_BITS_MAX:
            yield app.app_key.hex().upper(), key.hex().upper()


def _offset_of(queue: RecoveredQueue, files: PartitionFiles) -> int:
    records = iter_qlist(files.qlist.buffer)
    return next((record.offset for record in records if record.queue_key == queue.key), 0)


def _open(
    directory: Directory,
    partition_id: int,
    limits: PartitionLimits,
    make_timestamp: Callable[[str], str],
    damage: Damage,
    *,
    outlives_power: bool,
    heals: bool,
) -> tuple[PartitionFiles, Recovered]:
    older = [each for each in group_file_sets(directory.names()) if each.partition_id == partition_id]
    while older:
        newest = older.pop()
        is_unfinished = _never_finished(directory, newest, limits, replaces=any(each.complete for each in older))
        if not (is_unfinished or damage.is_there):
            newest = with_qlist(directory, newest, limits, synced=outlives_power)
        if is_unfinished:
            log.warning("partition %d: removed the unfinished files of %s", partition_id, newest.timestamp)
            for name in (newest.qlist, newest.data, newest.journal):
                if name is not None:
                    directory.remove(name)
        elif newest.complete:
            files = PartitionFiles.open(directory, newest, limits)
            recovered = _recover(directory, files)
            if isinstance(recovered, Recovered) and damage.is_there and (recovered.records or not heals):
                recovered = _StillDamaged(directory, damage)
            if isinstance(recovered, StoreDamaged):
                _let_go(files)
                raise recovered
            if older and outlives_power:
                # A killed process may not have flushed its writes.
                files.flush()
                directory.flush()
            _retire(directory, older, files)
            return files, recovered
        else:
            raise StoreDamaged(directory.path, [_incomplete(newest)], False)
    if damage.is_there and not heals:
        raise _StillDamaged(directory, damage)
    return _create(directory, partition_id, limits, make_timestamp, outlives_power=outlives_power)


def _never_finished(directory: Directory, file_set: FileSet, limits: PartitionLimits, *, replaces: bool) -> bool:
    """Return True if the set was still being made when the node died: nothing in it counts.

    In a set that `replaces` another, copied records do not count until the header marks them complete. A first set must
    not hold more than headers. The journal is made first and removed last: a set without one was in use.
    """
    if file_set.journal is None:
        return False
    if replaces:
        file = directory.open(file_set.journal, limits.journal)
        try:
            return _is_unfinished(file)
        finally:
            file.close()
    sizes = ((file_set.journal, limits.journal), (file_set.data, limits.data), (file_set.qlist, limits.qlist))
    return all(_is_blank(directory, name, size) for name, size in sizes if name is not None)


def _is_unfinished(journal: StoreFile) -> bool:
    if written_end(journal) <= HEADERS_WRITTEN_MAX:
        return True
    if not any(journal.buffer[:MAGIC_SIZE]):
        # A replica writes the header, its magic last, when everything that it receives or copies is there. After a
        # power failure, earlier writes need not be on the disk before later ones.
        return True
    try:
        extent = journal_extent(readable(journal))
    except FormatError:
        return False
    if _first_sync_point(extent.opened):
        return False
    # A rollover copies no sync point, and writes one at its end: later records were written by a primary.
    records = scan(journal.buffer, extent.first_record_offset, extent.record_count)
    sync_points = select(records, RecordType.JOURNAL_OP)[1].tolist()
    return not sync_points or sync_points[0] == extent.record_count - 1


def _first_sync_point(opened: OpenedFile) -> int:
    """Return the rollover's sync point in a journal's header; 0 while unfinished, and in a first set."""
    assert isinstance(opened.header, JournalFileHeader)
    return opened.header.first_sync_point_after_rollover_offset_words


def _is_blank(directory: Directory, name: str, size: int) -> bool:
    file = directory.open(name, size)
    try:
        return written_end(file) <= HEADERS_WRITTEN_MAX
    finally:
        file.close()


def _retire(directory: Directory, older: list[FileSet], files: PartitionFiles) -> None:
    finished = _first_sync_point(open_file(readable(files.journal), FileType.JOURNAL))
    for file_set in older:
        # The remains of a set after a power failure during its removal cannot be opened.
        if not finished and file_set.complete:
            log.warning(
                "%s: not created from the files of %s, which are left unchanged", files.journal.name, file_set.timestamp
            )
            continue
        for name in (file_set.journal, file_set.data, file_set.qlist):
            if name is not None:
                directory.archive(name)


def _incomplete(file_set: FileSet) -> Fault:
    found = file_set.journal or file_set.data or file_set.qlist
    assert found is not None
    missing = [
        file_type.name
        for file_type, name in zip(SET, (file_set.journal, file_set.data, file_set.qlist), strict=True)
        if name is None
    ]
    return fault("set-incomplete", found, 0, f"its {' and '.join(missing)} file is missing")


def _unknown_headers(views: list[FileView]) -> Iterator[Fault]:
    """Report headers longer than ours: their writer was newer, or their length is corrupted and hides records."""
    for view, file_type in zip(views, SET, strict=True):
        try:
            opened = open_file(view.buffer, file_type)
        except FormatError:
            continue  # reported by the validator
        known = len(initial_bytes(file_type, 0))
        if opened.first_record_offset != known:
            reason = f"headers of {opened.first_record_offset} bytes, expected {known}"
            yield fault("header", view.name, known, reason)


def _recover(directory: Directory, files: PartitionFiles) -> Recovered | StoreDamaged:
    """Recover the files' state, or return their damage: raised, its traceback would keep files open."""
    views = [FileView(file.name, readable(file)) for file in (files.journal, files.data, files.qlist)]
    found = (fault for fault in validate_file_set(*views) if fault.severity is Severity.ERROR)
    errors = list(islice(chain(_unknown_headers(views), found), FAULTS_SHOWN + 1))
    if errors:
        return StoreDamaged(directory.path, errors[:FAULTS_SHOWN], len(errors) > FAULTS_SHOWN)
    recovered = recover(files)
    for queue in recovered.queues.values():
        try:
            parse_uri(queue.uri)
        except FormatError as error:
            reason = f"queue {queue.key.hex().upper()}: {error.reason}"
            damage = fault("qlist-record", files.qlist.name, _offset_of(queue, files), reason)
            return StoreDamaged(directory.path, [damage], False)
    if recovered.bytes_cut:
        log.warning("%s: truncated %d bytes after the last complete record", files.journal.name, recovered.bytes_cut)
    return recovered
