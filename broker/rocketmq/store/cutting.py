"""Cuts the files of a store at an offset of its log, with a note beside them meanwhile.

After a loss of power during a cut, sound records may follow damaged ones. The note, a file of our own, lets the next
start complete the cut. It does not count if the original has run since: that changes the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.common.files import Directory, StoreFile
from broker.rocketmq.store.commit_log import CommitLog
from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.files.flush_mark import FLUSH_MARK, need_small, read_mark, write_mark
from broker.rocketmq.store.files.index_files import IndexFiles
from broker.rocketmq.store.ports import Folder

__all__ = ["CUT_NAME", "cut_files", "drop_cut_note", "note_cut", "noted_cut"]

# In the format of `bmqctl.flushed`: the log's new end, and the time of the last message on the disk.
CUT_NAME: Final = "bmqctl.cut"


def note_cut(root: Folder, stored_ms: int, offset: int) -> None:
    """Note on the disk that the log is to end at an offset. Raises `DiskFull`."""
    file = need_small(root, CUT_NAME, FLUSH_MARK.size)
    write_mark(file, stored_ms, offset)
    file.flush()
    file.close()
    root.flush()


def noted_cut(root: Folder, stored_ms: int) -> int | None:
    """Return the offset at which the log was being cut when the process ended; None if it was not."""
    if CUT_NAME not in root.names():
        return None
    file = root.open(CUT_NAME, FLUSH_MARK.size)
    note = read_mark(file)
    file.close()
    return None if note is None or note.stored_ms != stored_ms else note.log_end


def drop_cut_note(root: Folder) -> None:
    if CUT_NAME in root.names():
        root.remove(CUT_NAME)
        root.flush()


def cut_files(
    root: Folder,
    mark: StoreFile | None,
    log: CommitLog,
    queues: Iterable[ConsumeQueue],
    index: IndexFiles,
    offset: int,
) -> None:
    """Cut all files but the index at an offset of the log, flush that, and drop the note.

    `mark` has the offset up to which the log is on the disk.
    """
    if mark is not None:
        marked = read_mark(mark)
        if marked is not None and marked.log_end > offset:
            write_mark(mark, marked.stored_ms, offset)
        # Before the log: recovery does not examine the log before the mark. Even if this one is low enough, the disk
        # may have an earlier one that is not.
        mark.flush()
    changed: list[StoreFile | Directory] = []
    for queue in queues:
        changed.extend(queue.truncate(offset))
    log.cut(offset)
    changed.extend((*log.files.unflushed(offset, offset + 1), log.files.directory, *index.unflushed()))
    for file in changed:
        file.flush()
    drop_cut_note(root)
