"""The locks of a RocketMQ store: held by one broker at a time, ours or the original (source: DefaultMessageStore)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from broker.shell.files.mapped_files import make_folder, open_regular

__all__ = ["FolderLock", "StoreInUse", "StoreLock"]


class StoreInUse(Exception):
    """Another broker holds the store."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: in use by another broker; stop it, or name another folder with --store")


class StoreLock:
    """The lock on the file `lock` in a store's folder. The kernel releases it when the process ends."""

    def __init__(self, root: Path) -> None:
        make_folder(root)
        self._descriptor = open_regular(root / "lock", os.O_RDWR | os.O_CREAT)
        try:
            # The first byte, as Java's FileChannel.tryLock(0, 1, false) does.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            os.close(self._descriptor)
            raise StoreInUse(root) from None
        os.pwrite(self._descriptor, b"lock", 0)

    def release(self) -> None:
        os.close(self._descriptor)


class FolderLock:
    """A lock on a folder of a commit log, which may be that of another store. The original does not know it.

    The kernel releases it when the process ends. On a file system without such locks, such as NFS, there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StoreInUse(folder) from None
        except OSError:
            pass

    def release(self) -> None:
        os.close(self._descriptor)
