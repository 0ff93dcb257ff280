"""The examination of a store before a start: nothing is written before it is known to be usable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from broker.rocketmq.assembly.disks import disk_used
from broker.rocketmq.assembly.identity import EPOCHS, small_file
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.config.other_stores import stored_kinds
from broker.rocketmq.config.property_readers import PropertyError, raise_first
from broker.rocketmq.store.consume_queue import last_entry
from broker.rocketmq.store.cutting import CUT_NAME
from broker.rocketmq.store.files.extent import Extent, check_extent, is_current
from broker.rocketmq.store.files.file_rows import check_row
from broker.rocketmq.store.files.index_files import is_index_name
from broker.rocketmq.store.message_store import ABORT, CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, INDEX
from broker.rocketmq.store.terms import StoreOptions
from broker.shell.files.folders import FileFolder, FolderView, RootFolder, SpreadFolder
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.flush_mark import MARK_NAME, decode_mark
from formats.rocketmq.files.index import IndexFile
from formats.rocketmq.files.names import offset_of_name

__all__ = ["check_store", "disk_of_store", "log_folders", "root_of_store"]

# Above this used part of a disk, the log gets no further file there (source: diskSpaceCleanForciblyRatio).
_FULL: Final = 0.85
# Log files of other sizes were cut short.
_SECTOR: Final = 512
_INDEX_FILES_ASKED: Final = 8


def root_of_store(config: RocketConfig) -> FileFolder:
    """Open the folder of a store, whose commit log may be elsewhere; create missing folders."""
    written, read_only = log_folders(config), config.places.read_only_log or ()
    if len(written) > 1 or read_only:
        return RootFolder(config.store, {COMMIT_LOG: SpreadFolder(written, read_only, _is_full)})
    return RootFolder(config.store, {COMMIT_LOG: FileFolder(written[0])})


def log_folders(config: RocketConfig) -> tuple[Path, ...]:
    return config.places.log or (config.store / COMMIT_LOG,)


def _is_full(path: Path) -> bool:
    return disk_used(path) > _FULL


def disk_of_store(config: RocketConfig) -> float:
    """Return how full the disks of a store are, from 0 to 1: its own, or the log's emptiest one if fuller."""
    return max(disk_used(config.store), min(map(disk_used, log_folders(config))))


def check_store(config: RocketConfig) -> tuple[RocketConfig, list[str]]:
    """Check that a node can use a store. Nothing is changed.

    Returns the configuration with the sizes of the store's files, and the properties that differ from them. Raises
    `PropertyError` for a store that cannot be kept as configured, and `StoreDamaged` if files are missing.
    """
    paths = [*log_folders(config), *(config.places.read_only_log or ())]
    root = FolderView(config.store, elsewhere={COMMIT_LOG: [*dict.fromkeys(paths)]})
    raise_first([*_misplaced(config), *stored_kinds(root)])
    queues = [*_queues(root.folder(CONSUME_QUEUE))]
    options, notes = _sizes(root, queues, config.store_options)
    for queue in queues:
        check_row(queue.folder.path_of, queue.names, options.consume_queue_file_bytes)
    epochs = small_file(config, EPOCHS)
    was_cut = CUT_NAME in root.names() or (epochs.is_file() and epochs.stat().st_size > 0)
    check_extent(_extent(root, queues, options, was_cut))
    return replace(config, store_options=options), notes


# -- places


_FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "queues": ("storePathConsumeQueue", CONSUME_QUEUE),
    "index": ("storePathIndex", INDEX),
    "checkpoint": ("storeCheckpoint", CHECKPOINT),
    "abort": ("abortFile", ABORT),
}


def _misplaced(config: RocketConfig) -> Iterator[PropertyError]:
    """Yield a fault for each place that is not where the files are, or belongs to another store."""
    store = config.store.absolute()
    root = store if config.places.root is None else config.places.root.absolute()
    for attribute, (name, file) in _FIXED.items():
        path: Path | None = getattr(config.places, attribute)
        if path is not None and path.absolute() not in (root / file, store / file):
            yield PropertyError(
                f"{name}={path} has no effect: Apache's broker, and this one, keep that in {config.store / file}",
                "move it there, and remove the property",
            )
    for path in (*(config.places.log or ()), *(config.places.read_only_log or ())):
        if root != store and path.absolute().is_relative_to(root):
            yield PropertyError(
                f"the store is {config.store} (--store), but the folder {path} for its log is in {root}",
                "leave out --store, or remove storePathCommitLog and readOnlyCommitLogStorePaths",
            )


# -- rows of files


class _Queue(NamedTuple):
    name: str
    folder: FolderView
    names: list[str]


def _queues(folder: FolderView) -> Iterator[_Queue]:
    for topic in folder.folders():
        for name in folder.folder(topic).folders():
            inner = folder.folder(topic).folder(name)
            yield _Queue(f"queue {name} of topic {topic}", inner, _row(inner))


def _row(folder: FolderView) -> list[str]:
    return [name for name in folder.names() if offset_of_name(name) is not None]


def _extent(root: FolderView, queues: Sequence[_Queue], options: StoreOptions, was_cut: bool) -> Extent:
    """Return how far the log reaches. Its tables are read before the log, as a broker may be writing it.

    With a current mark the queues add nothing. Raises `StoreDamaged` if a file of the log is missing between others.
    """
    has_crashed = ABORT in root.names()
    checkpoint = _small(root, CHECKPOINT)
    checkpoint_ms = STORE_CHECKPOINT.unpack(checkpoint).commit_log_ms if len(checkpoint) >= CHECKPOINT_BYTES else 0
    mark = decode_mark(_small(root, MARK_NAME))
    ends = [] if is_current(mark, checkpoint_ms) else [(_end_of(queue), queue.name) for queue in queues]
    queue_end, queue = max(ends, default=(0, ""))
    log = root.folder(COMMIT_LOG)
    names = _row(log)
    check_row(log.path_of, names, options.commit_log_file_bytes)
    end = (offset_of_name(names[-1]) or 0) + options.commit_log_file_bytes if names else 0
    return Extent(log.path, end, bool(names), queue_end, queue, checkpoint_ms, mark, has_crashed, was_cut)


def _small(root: FolderView, name: str) -> bytes:
    if name not in root.names():
        return b""
    with root.reading(name) as read:
        return read(0, CHECKPOINT_BYTES)


def _end_of(queue: _Queue) -> int:
    """Return the offset of the log after a queue's last message; 0 for none."""
    for name in reversed(queue.names):
        with queue.folder.reading(name) as read:
            entry = last_entry(read, queue.folder.size_of(name))
        if entry is not None:
            return entry.physical_offset + entry.size
    return 0


# -- sizes


_SIZES: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": "commit_log_file_bytes",
    "mappedFileSizeConsumeQueue": "consume_queue_file_bytes",
    "maxHashSlotNum": "index_slots",
    "maxIndexNum": "index_entries",
}


def _sizes(root: FolderView, queues: Sequence[_Queue], options: StoreOptions) -> tuple[StoreOptions, list[str]]:
    """Return the sizes of a store's files, with defaults from the options, and what differs."""
    log = root.folder(COMMIT_LOG)
    log_bytes = _one_size((log.size_of(name) for name in _row(log)), _SECTOR)
    queue_sizes = (queue.folder.size_of(name) for queue in queues for name in queue.names)
    queue_bytes = _one_size(queue_sizes, CONSUME_QUEUE_ENTRY.size)
    found = options._replace(
        commit_log_file_bytes=log_bytes or options.commit_log_file_bytes,
        consume_queue_file_bytes=queue_bytes or options.consume_queue_file_bytes,
    )
    found = _index_sizes(root.folder(INDEX), found)
    notes = [
        f"{name}={getattr(options, attribute)} differs from the files of the store; {getattr(found, attribute)} is used"
        for name, attribute in _SIZES.items()
        if getattr(found, attribute) != getattr(options, attribute)
    ]
    return found, notes


def _one_size(sizes: Iterator[int], unit: int) -> int | None:
    """Return the size of all files, if it is a multiple of `unit`. Empty files, left by a crash, do not count."""
    found = {*sizes} - {0}
    size = found.pop() if len(found) == 1 else None
    return None if size is None or size % unit else size


def _index_sizes(folder: FolderView, options: StoreOptions) -> StoreOptions:
    """Return options with the layout of the index files. Raises `PropertyError` if they do not show it."""
    names = [name for name in folder.names() if is_index_name(name) and folder.size_of(name)]
    sizes = {folder.size_of(name) for name in names}
    if sizes <= {IndexFile.size_of(options.index_slots, options.index_entries)}:
        return options
    # Imports NumPy, which takes long.
    from broker.rocketmq.assembly.index_view import index_layout

    layout = index_layout(folder, names[-_INDEX_FILES_ASKED:]) if len(sizes) == 1 else None
    if layout is None:
        raise PropertyError(
            f"{folder.path}: its files have {', '.join(map(str, sorted(sizes)))} bytes, which are not those of "
            f"maxHashSlotNum={options.index_slots} and maxIndexNum={options.index_entries}",
            "set both to what the store was written with, or move the folder away, for an index of later messages only",
        )
    return options._replace(index_slots=layout.slots, index_entries=layout.entries)
