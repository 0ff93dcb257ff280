"""The files of a node: its logs, its configuration, and the list of its store.

Others may write to the folders, and root often writes the bundle: a link in a broker's folder could add another
account's file. So only plain files are read, and no links out of the folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Final

from bmqctl.systems.bundling.archive import Archive
from bmqctl.systems.bundling.redaction import LINE_CHARS_MAX, has_private_key

__all__ = ["add_configuration", "add_logs", "add_store", "is_plain", "logs_of"]

CONFIG_BYTES_MAX: Final = 1 << 20
CONFIG_FILES_MAX: Final = 500
LOGS_MAX: Final = 200
# Less than this is not worth a file.
LOG_BYTES_MIN: Final = 1_024
STORE_FILES_MAX: Final = 20_000

_CONFIG_SUFFIXES: Final = frozenset({".json", ".conf", ".cfg", ".properties", ".yml", ".yaml", ".toml", ".ini"})
_NODE_LOGS: Final = ("bmqbrkr.log*", "bmqctl.log*")
# Of RocketMQ's folder `config`, the tables without users.
_TABLES: Final = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "delayOffset.json",
    "topicQueueMapping.json",
)

DEPTH_MAX: Final = 6
ENTRIES_MAX: Final = 50_000

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def files_of(folder: Path, depth: int = DEPTH_MAX) -> Iterator[Path]:
    """Yield all entries below a folder except folders, links included, by name; at most `ENTRIES_MAX` per folder."""
    try:
        entries = sorted(islice(folder.iterdir(), ENTRIES_MAX))
    except OSError:
        return
    for each in entries:
        if not _is_folder(each):
            yield each
        elif depth:
            yield from files_of(each, depth - 1)


def open_plain(path: Path, folder: Path | None = None) -> IO[bytes]:
    """Open a plain file for reading. Raises `OSError`, whose `strerror` is the reason, for any other.

    With `folder`, the file must be in it after all links are followed, and a file with several hard links must have the
    owner of the folder. The checks apply to the opened file, even if its name changes meanwhile.
    """
    # Path.resolve raises RuntimeError for a loop of links.
    place = Path(os.path.realpath(path))
    root = place.parent if folder is None else Path(os.path.realpath(folder))
    if not place.is_relative_to(root):
        raise OSError(errno.ELOOP, "it is a link out of its folder, which is not followed")
    descriptor = os.open(root, _FLAGS | os.O_DIRECTORY)
    try:
        owner = os.fstat(descriptor).st_uid
        for part in place.relative_to(root).parts:
            above, descriptor = descriptor, os.open(part, _FLAGS, dir_fd=descriptor)
            os.close(above)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        if folder is not None and found.st_nlink > 1 and found.st_uid != owner:
            raise OSError(errno.EMLINK, "it has other names, and another owner than its folder")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def add_configuration(archive: Archive, path: Path) -> None:
    """Add a file, or the files of a folder with the suffixes of configurations."""
    if path.is_dir():
        found = list(islice(files_of(path), CONFIG_FILES_MAX + 1))
        if len(found) > CONFIG_FILES_MAX:
            reason = f"{path} has more than {CONFIG_FILES_MAX} files; the others are left out"
            archive.lack("configuration", reason, by_design=True)
        for each in found[:CONFIG_FILES_MAX]:
            name = f"configuration/{each.relative_to(path)}"
            if each.suffix.lower() in _CONFIG_SUFFIXES:
                _add_file(archive, name, each, path)
            else:
                archive.lack(name, "its name is not that of a configuration, and it may be a key", by_design=True)
    else:
        _add_file(archive, f"configuration/{path.name}", path)


def is_plain(path: Path) -> bool:
    """Return whether a configuration, or each one in a folder, is a readable plain file."""
    folder = path if path.is_dir() else None
    try:
        for each in [path] if folder is None else files_of(path):
            if folder is None or each.suffix.lower() in _CONFIG_SUFFIXES:
                open_plain(each, folder).close()
    except OSError:
        return False
    return True


def _add_file(archive: Archive, name: str, path: Path, folder: Path | None = None) -> None:
    try:
        with open_plain(path, folder) as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as fault:
        archive.lack(name, fault.strerror or str(fault))
        return
    if len(data) > CONFIG_BYTES_MAX:
        archive.lack(name, f"it has more than {CONFIG_BYTES_MAX:,} bytes", by_design=True)
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        archive.lack(name, "it is no text")
        return
    if has_private_key(text):
        archive.lack(name, "it has a private key, which is never taken along", by_design=True)
        return
    archive.add_configuration(name, text)


def logs_of(folder: Path | None, named: Iterable[Path]) -> dict[Path, Path | None]:
    """The logs of a node's folder, of named folders, and named logs, the newest first.

    Maps each log to the folder that its links may not leave, or to None if the log itself was named.
    """
    found: dict[Path, Path | None] = {}
    if folder is not None:
        for pattern in _NODE_LOGS:
            found |= dict.fromkeys(folder.glob(pattern), folder)
        for within in (folder / "logs", folder / "log"):
            found |= {log: folder for log in files_of(within) if ".log" in log.name}
    for each in named:
        found |= {log: each for log in files_of(each) if ".log" in log.name} if each.is_dir() else {each: None}
    return dict(sorted(found.items(), key=lambda item: (-_modified(item[0]), str(item[0]))))


def add_logs(archive: Archive, logs: Mapping[Path, Path | None], folder: Path | None, bytes_max: int) -> None:
    """Add the ends of logs, the newest first, up to `bytes_max`."""
    left = bytes_max
    for path, within in islice(logs.items(), LOGS_MAX):
        inside = folder is not None and path.is_relative_to(folder)
        name = f"logs/{path.relative_to(folder) if inside and folder is not None else path.name}"
        if any(each["name"] == name for each in archive.files):
            name = f"logs/{'_'.join(path.parts[1:])}"
        if left < LOG_BYTES_MIN:
            archive.lack(name, "there is no room left: see --logs-mib", by_design=True)
            continue
        try:
            with open_plain(path, within) as file:
                size = os.fstat(file.fileno()).st_size
                note = f"{path}" if size <= left else f"{path}: the last {left:,} of {size:,} bytes"
                # Redaction may lengthen lines; the last lines matter most.
                left -= archive.add_lines(name, _last_lines(file, left), 2 * left, note)
        except OSError as fault:
            archive.lack(name, fault.strerror or str(fault))
    for path in list(logs)[LOGS_MAX:]:
        archive.lack(f"logs/{path.name}", f"there are more than {LOGS_MAX} logs", by_design=True)


def _last_lines(file: IO[bytes], bytes_max: int) -> Iterator[str]:
    """Yield the lines at the end of a file; only the beginning of one longer than any of a broker's."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - bytes_max))
    is_inside = size > bytes_max
    while (left := size - file.tell()) > 0 and (line := file.readline(min(left, LINE_CHARS_MAX))):
        if not is_inside:
            yield line.decode("utf-8", "backslashreplace")
        is_inside = not line.endswith(b"\n")


def add_store(archive: Archive, folder: Path) -> None:
    """Add the list of a folder's files, with sizes and times, and RocketMQ's tables of topics and groups."""
    rows = []
    for path in islice(files_of(folder), STORE_FILES_MAX):
        try:
            stat = path.stat(follow_symlinks=False)
        except OSError:
            continue  # it was removed meanwhile
        modified = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="milliseconds")
        # A sparse file has fewer bytes on the disk than its length.
        rows.append(
            {
                "file": str(path.relative_to(folder)),
                "bytes": stat.st_size,
                "on_disk": stat.st_blocks * 512,
                "modified": modified,
            }
        )
    note = f"the first {STORE_FILES_MAX:,}" if len(rows) == STORE_FILES_MAX else ""
    archive.add_json("store/files.json", {"folder": str(folder), "files": rows}, note)
    for name in _TABLES:
        table = folder / "config" / name
        if os.path.lexists(table):
            _add_file(archive, f"store/config/{name}", table, folder)


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
