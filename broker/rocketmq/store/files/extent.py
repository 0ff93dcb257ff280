"""Checks that no file of a store's commit log is missing, by the store's other files.

Recovery follows the log, and drops queue entries for messages that the log does not have. If files of the log are
missing, that would destroy the entries that refer to them.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.rocketmq.store.errors import StoreFileDamaged
from broker.rocketmq.store.files.flush_mark import FlushMark

__all__ = ["Extent", "check_extent", "is_current"]


class Extent(NamedTuple):
    """The end of a log's files, and what the store's other files imply about it.

    `path` is the log's; `has_files` is false for a log without any. `queue_end` is the largest end in the log of a
    queue's last message, 0 for none, and `queue` names that queue. `checkpoint_ms` is the storing time of the last
    message on the disk by the checkpoint, 0 for none. `has_crashed` is true unless the broker has stopped cleanly, and
    `was_cut` if the log may have been cut.
    """

    path: str
    end: int
    has_files: bool
    queue_end: int
    queue: str
    checkpoint_ms: int
    mark: FlushMark | None
    has_crashed: bool
    was_cut: bool


def is_current(mark: FlushMark | None, checkpoint_ms: int) -> bool:
    """Return whether there is a mark, and no other broker has run since."""
    return mark is not None and mark.stored_ms >= checkpoint_ms


def check_extent(extent: Extent) -> None:
    """Raise `StoreFileDamaged` if files at the end of the log are missing, or all of them.

    After a loss of power, queues may have entries for messages that never reached the disk. Only a mark that is not
    older than the checkpoint shows that. Where the original has cut the log, it leaves old entries after the end of a
    queue.
    """
    mark = extent.mark if is_current(extent.mark, extent.checkpoint_ms) else None
    if mark is not None and mark.log_end > extent.end:
        raise _damaged(extent, f"all before offset {mark.log_end} had been on the disk")
    may_be_old = (mark is not None and extent.has_crashed) or (extent.was_cut and extent.has_files)
    if extent.queue_end > extent.end and not may_be_old:
        raise _damaged(extent, f"{extent.queue} has a message that ends at offset {extent.queue_end}")
    if not extent.has_files and mark is None and extent.checkpoint_ms:
        raise _damaged(extent, "messages had been on the disk by the checkpoint")


def _damaged(extent: Extent, reason: str) -> StoreFileDamaged:
    found = f"its files end here, but {reason}" if extent.has_files else f"there is no commit log, but {reason}"
    remedy = (
        "set storePathCommitLog to where the log is, or bring its files back from a replica or a backup; without them, "
        "start with an empty store"
    )
    return StoreFileDamaged(extent.path, extent.end, found, remedy)
