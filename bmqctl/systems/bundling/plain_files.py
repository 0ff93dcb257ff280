"""Access to the files below a folder that others may write to: no links out of the folder, and only plain files.

Root often writes the bundle. Otherwise a link in a broker's folder could add a file of another account to it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Final

__all__ = ["files_of", "open_plain"]

DEPTH_MAX: Final = 6
ENTRIES_MAX: Final = 50_000

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def files_of(folder: Path, depth: int = DEPTH_MAX) -> Iterator[Path]:
    """Yield all entries below a folder but folders, links included, by name; at most `ENTRIES_MAX` per folder."""
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
    """Open a plain file for reading. Raises `OSError`, whose `strerror` states the reason, for anything else.

    With `folder`, the file must be in it after all links are followed, and a file with several hard links must have the
    owner of the folder. The checks apply to the file that is opened, even if its name changes meanwhile.
    """
    # Unlike Path.resolve, this raises no RuntimeError for a loop of links.
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
