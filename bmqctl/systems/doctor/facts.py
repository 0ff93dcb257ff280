"""Facts about this host and a folder on it, from the operating system."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from bmqctl.common.installed import is_compiled
from bmqctl.common.version import version_text

__all__ = ["FolderFacts", "HostFacts", "folder_facts", "host_facts"]

PACKAGES: Final = ("numpy", "pydantic", "trio")
FILES_MAX: Final = 100_000
MAPPINGS: Final = Path("/proc/sys/vm/max_map_count")
MOUNTS: Final = Path("/proc/self/mountinfo")
# Clock not synchronized (source: adjtimex(2)).
_TIME_ERROR: Final = 5
_TIMEX_BYTES: Final = 1024


class HostFacts(NamedTuple):
    """A host and its limits. None is unknown; a limit of descriptors of -1 is unlimited."""

    program: str
    python: str
    system: str
    packages: dict[str, str | None]
    descriptors: int
    mappings: int | None
    is_clock_synchronized: bool | None
    is_compiled: bool


class FolderFacts(NamedTuple):
    """A folder, its disk, and the writing time of its newest file in seconds."""

    path: Path
    is_writable: bool
    file_system: str | None
    free_bytes: int
    total_bytes: int
    free_files: int
    total_files: int
    newest_s: float | None
    now_s: float


def host_facts() -> HostFacts:
    return HostFacts(
        version_text().splitlines()[0],
        platform.python_version(),
        platform.platform(),
        {name: _package_version(name) for name in PACKAGES},
        resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        _mappings(),
        _is_clock_synchronized(),
        is_compiled(),
    )


def folder_facts(path: Path) -> FolderFacts:
    """Look at a folder. Raises `OSError` if it is missing or unreadable."""
    disk = os.statvfs(path)
    newest = max(_times(path), default=None)
    return FolderFacts(
        path,
        os.access(path, os.W_OK | os.X_OK),
        _file_system(path.resolve()),
        disk.f_bavail * disk.f_frsize,
        disk.f_blocks * disk.f_frsize,
        disk.f_favail,
        disk.f_files,
        newest,
        time.time(),
    )


def _package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _mappings() -> int | None:
    try:
        return int(MAPPINGS.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_clock_synchronized() -> bool | None:
    """Return whether the kernel's clock is synchronized; None where that cannot be asked."""
    try:
        # All zeros: nothing is set. The structure is smaller than this. Only Linux has the call.
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _times(path: Path) -> Iterator[float]:
    for entry in islice(_entries(path), FILES_MAX):
        try:
            yield entry.stat(follow_symlinks=False).st_mtime
        except OSError:
            continue  # it was removed meanwhile


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as found:
        for entry in found:
            if entry.is_file(follow_symlinks=False):
                yield entry
            elif entry.is_dir(follow_symlinks=False):
                try:
                    with os.scandir(entry.path) as inner:
                        yield from (each for each in inner if each.is_file(follow_symlinks=False))
                except OSError:
                    continue


def _file_system(path: Path) -> str | None:
    """The type of a path's file system, at the deepest mount point above it."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    found: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        words, types = before.split(), after.split()
        if len(words) < 5 or not types:
            continue
        place = Path(words[4].replace("\\040", " "))
        # Of two mounts at one place the later one counts.
        if path.is_relative_to(place) and (found is None or len(place.parts) >= found[0]):
            found = len(place.parts), types[0]
    return None if found is None else found[1]
