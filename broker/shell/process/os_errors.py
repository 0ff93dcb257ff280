"""Errors of the operating system as one line for the operator: the file, the reason, the remedy."""

from __future__ import annotations

import errno
import os

__all__ = ["os_error_line", "with_remedy"]

_REMEDIES = {
    errno.EACCES: "make it writable, or name another {folder}",
    errno.EPERM: "make it writable, or name another {folder}",
    errno.EROFS: "mount it for writing, or name another {folder}",
    errno.ENOTDIR: "name another {folder}",
    errno.EEXIST: "name another {folder}",
    errno.EISDIR: "remove the directory, or name another {folder}",
    errno.ENAMETOOLONG: "name a {folder} with a shorter path",
    errno.ELOOP: "fix its symbolic links, or name another {folder}",
    errno.ENOENT: "create its parent directory, or name another {folder}",
    errno.ENOSPC: "free space on its disk, or name another {folder}",
    errno.EDQUOT: "raise the quota, or name another {folder}",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or configure smaller files",
    errno.EIO: "the disk failed: see the kernel's log",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOMEM: "free memory, or configure smaller files",
}


_OF_TEXTS = {os.strerror(code): _REMEDIES[code] for code in (errno.EMFILE, errno.ENFILE)}


def os_error_line(error: OSError, folder: str | None = "folder") -> str:
    """Return the error in one line, with a remedy where one follows from its cause.

    `folder` names what the user may replace by another; None if the command writes no folder.
    """
    path = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0, "")
    if folder is None and "{folder}" in remedy:
        remedy = ""
    return f"{path}{error.strerror or error}" + (f"; {remedy.format(folder=folder)}" if remedy else "")


def with_remedy(reason: str) -> str:
    """Add the remedy for too few descriptors to a reason, however it is reported as text."""
    found = (f"; {remedy}" for text, remedy in _OF_TEXTS.items() if text in reason and remedy not in reason)
    return reason + "".join(found)
