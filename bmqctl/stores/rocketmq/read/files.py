"""The files of a RocketMQ store, by path (source: StorePathConfigHelper).

A broker may be writing them: nothing is mapped, and files that vanish are left out.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import Final, NamedTuple

from bmqctl.common.regular import open_buffered
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from formats.errors import FormatError
from formats.rocketmq.files.names import offset_of_name
from formats.rocketmq.numbers import INT_MAX, read_digits
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS, OFFSET_FILES

__all__ = [
    "ABORT",
    "LogFile",
    "QueueFiles",
    "RowFile",
    "StoreFiles",
    "is_store",
    "log_files",
    "open_store",
    "read_small",
    "store_of",
]

# A broker creates this file when it starts, and removes it when it stops.
ABORT: Final = "abort"
LOG_FOLDER: Final = "commitlog"
CHECKPOINT: Final = "checkpoint"
QUEUE_FOLDER: Final = "consumequeue"
INDEX_FOLDER: Final = "index"
_FOLDERS: Final = (LOG_FOLDER, QUEUE_FOLDER, INDEX_FOLDER, "config")
_INDEX_NAME_DIGITS: Final = 17
OFFSET_MAX: Final = (1 << 63) - 1
_SMALL_BYTES_MAX: Final = 256 << 20


class RowFile(NamedTuple):
    """A file in a row of equally sized files: its first offset and the one after its last, in bytes."""

    path: Path
    begin: int
    end: int


LogFile = RowFile


class QueueFiles(NamedTuple):
    """The files of a consume queue, in order."""

    topic: str
    queue_id: int
    files: tuple[RowFile, ...]

    @property
    def begin(self) -> int:
        """The first byte of the first file, counted over all files that the queue has had."""
        return self.files[0].begin


class StoreFiles(NamedTuple):
    """The files of a store: its folder, the commit log, and the index."""

    root: Path
    log: tuple[LogFile, ...]
    index_files: tuple[Path, ...]

    @property
    def begin(self) -> int:
        return self.log[0].begin if self.log else 0

    @property
    def end(self) -> int:
        """The offset after the log's last file, whose end may be empty."""
        return self.log[-1].end if self.log else 0

    def config(self, name: str) -> Path:
        return self.root / "config" / name

    @property
    def offsets(self) -> Path:
        """The path of the groups' offsets; of two readable files, the one changed last."""
        usual, lmq = map(self.config, OFFSET_FILES)
        try:
            first, second = read_small(usual), read_small(lmq)
            if first is None or second is None:
                return usual if second is None else lmq
            return max((usual, first), (lmq, second), key=lambda each: CONSUMER_OFFSETS.read(each[1]).changed_ms)[0]
        except (OSError, FormatError):
            return usual

    def queues(self) -> list[QueueFiles]:
        """The consume queues, by topic and number. Raises `NotAStoreFile`."""
        found = [
            QueueFiles(topic.name, number, tuple(files))
            for topic in _folders(self.root / QUEUE_FOLDER)
            for queue in _folders(topic)
            if (number := _queue_number(queue.name)) is not None and (files := _row(queue))
        ]
        return sorted(found, key=lambda queue: queue[:2])


def is_store(path: Path) -> bool:
    """Return whether `path` is the folder of a RocketMQ store, or inside one."""
    return store_of(path) is not None


def store_of(path: Path) -> Path | None:
    """The folder of the store that contains `path`; None if there is none."""
    if _is_root(path):
        return path
    absolute = path.absolute()
    for inner in (absolute, *absolute.parents):
        if inner.name in _FOLDERS and _is_root(inner.parent):
            return inner.parent
    return None


def _is_root(folder: Path) -> bool:
    try:
        has_log = any(offset_of_name(name) is not None for name in _names(folder / LOG_FOLDER))
        # A store has no log files before its first message, or if its log is lost.
        return has_log or (folder / CHECKPOINT).is_file() or any(_folders(folder / QUEUE_FOLDER))
    except NotAStoreFile:
        return False


def open_store(path: Path) -> StoreFiles:
    """Find the files of the store that contains `path`. Raises `NotAStoreFile`."""
    root = store_of(path)
    if root is None:
        parts = f"no {LOG_FOLDER} with files named by offset, no {QUEUE_FOLDER} and no {CHECKPOINT}"
        raise NotAStoreFile(f"{path} is no RocketMQ store: it has {parts}")
    folder = root / INDEX_FOLDER
    names = sorted(name for name in _names(folder) if len(name) == _INDEX_NAME_DIGITS and read_digits(name) is not None)
    return StoreFiles(root, tuple(log_files(root)), tuple(folder / name for name in names))


def log_files(root: Path) -> list[LogFile]:
    """The commit log files of the store `root`, in order. Raises `NotAStoreFile`."""
    return _row(root / LOG_FOLDER)


def read_small(path: Path) -> bytes | None:
    """Read a file outside any row, such as a configuration file; None if there is none.

    Raises `OSError`, also for a file larger than any that a broker writes.
    """
    try:
        with open_buffered(path) as file:
            data = file.read(_SMALL_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(data) > _SMALL_BYTES_MAX:
        raise OSError(errno.EFBIG, f"has more than {_SMALL_BYTES_MAX} bytes", str(path))
    return data


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NotAStoreFile(f"{folder}: {error.strerror}") from None


def _folders(folder: Path) -> list[Path]:
    return [path for name in _names(folder) if (path := folder / name).is_dir()]


def _queue_number(name: str) -> int | None:
    """The number of the queue whose folder has this name; None for any other name."""
    number = read_digits(name, INT_MAX)
    return number if name == str(number) else None


def _row(folder: Path) -> list[RowFile]:
    """The non-empty files of a row, in order. Raises `NotAStoreFile`."""
    found = []
    for name in _names(folder):
        begin = offset_of_name(name)
        if begin is None:
            continue
        path = folder / name
        try:
            found_there = path.stat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found_there.st_mode):
            raise NotAStoreFile(f"{path} is not a regular file")
        size = found_there.st_size
        if size and begin + size <= OFFSET_MAX:
            found.append(RowFile(path, begin, begin + size))
    return sorted(found, key=lambda file: file.begin)
