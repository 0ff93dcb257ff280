"""The rest of an older, longer log, which the original leaves after the end of a log that it has cut.

Source: AutoSwitchHAClient, MappedFileQueue.truncateDirtyFiles, ConsumeQueue.truncateDirtyLogicFiles, CommitLog. A
broker whose log has diverged from its master's sets the ends of its log and queues back, removes later files, and
writes on from there, without clearing the old bytes. At its next start the log ends where no sound record begins.

That alone would also pass over damage in the middle of a log. The records distinguish the two: in one epoch no record
is older than the first, but all of the rest are, as they were stored before the master of the last epoch began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.rocketmq.store.files.file_rows import FileRow
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record

__all__ = ["LastEpoch", "find_last_epoch", "read_sound"]


class LastEpoch(NamedTuple):
    """The last epoch of a log that has records: its begin, and the storing time of its first record.

    No epoch begins after `last_begin`. After a clean stop, `dispatched_ms` is the time of the log's last record.
    """

    begin: int
    first_ms: int
    last_begin: int
    dispatched_ms: int | None = None

    def may_end(self, offset: int, stored_ms: int) -> bool:
        """Return whether a log with this epoch may end at an offset, after a record stored at that time."""
        return self.begin < offset and self.last_begin <= offset and self.dispatched_ms in (None, stored_ms)

    def is_older(self, record: Record) -> bool:
        return record.stored_ms < self.first_ms


def find_last_epoch(files: FileRow, begins: Sequence[int], dispatched_ms: int | None) -> LastEpoch | None:
    """Find the last of the epochs with these first offsets that has a record.

    None if that is uncertain: a place without a record may have had one that was damaged, unless `dispatched_ms`
    decides.
    """
    for begin in sorted(begins, reverse=True):
        found = read_sound(files, begin)
        if found is not None:
            return LastEpoch(begin, found.stored_ms, max(begins), dispatched_ms)
        if dispatched_ms is None:
            return None
    return None


def read_sound(files: FileRow, offset: int) -> Record | None:
    """Read the record at `offset`, or after a blank one there; None if it is not sound."""
    while files.begin <= offset < files.end:
        file, place = files.place(offset)
        try:
            record = decode_record(file.buffer, place)
        except FormatError:
            return None
        if isinstance(record, Record):
            return record if record.is_body_sound and record.physical_offset == offset else None
        if record is None:
            return None
        # A blank record fills the file.
        offset += record.size
    return None
