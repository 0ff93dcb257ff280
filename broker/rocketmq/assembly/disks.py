"""The disk of a store."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["disk_used", "disk_used_bytes"]


def disk_used(folder: Path) -> float:
    """Return the part of a folder's disk in use, from 0 to 1 in hundredths, without root's share.

    Source: UtilAll.getDiskPartitionSpaceUsedPercent.
    """
    found = os.statvfs(folder)
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    return math.ceil(100 * used / usable) / 100 if usable else 0.0


def disk_used_bytes(folder: Path) -> int | None:
    """Return the bytes in use of a folder's disk; None if the folder is missing."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return (found.f_blocks - found.f_bfree) * found.f_frsize
