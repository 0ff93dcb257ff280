"""Removal of old messages: by their age, and when the disk becomes full (source: CleanCommitLogService).

Whole files of the log are removed, oldest first, and never the last one. A file is as old as its last message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError

__all__ = ["Retention", "RetentionLimits"]

log = logging.getLogger("broker.rocketmq.retention")

LOOK_MS: Final = 10_000
# Files that are removed in one go, for the sake of others.
STEP_FILES: Final = 10


def _at_any_time(now_ms: int) -> bool:
    """Return True."""
    return True


class RetentionLimits(NamedTuple):
    """The limits of age, and of the part of the disk in use (0 to 1) from which on the oldest files go anyway.

    Old files go when `is_time`, or from `disk_used_early` on, whatever the time is.
    """

    reserved_ms: int = 72 * 3_600_000
    disk_used_max: float = 0.85
    disk_used_early: float = 0.75
    is_time: Callable[[int], bool] = _at_any_time


class Retention:
    """Removes old files. `disk_used` tells how full the disk is, from 0 to 1."""

    def __init__(self, store: MessageStore, limits: RetentionLimits, disk_used: Callable[[], float]) -> None:
        self._store = store
        self.limits = limits
        self._disk_used = disk_used
        self._looked_ms = 0

    def tick(self, now_ms: int) -> None:
        """Look every ten seconds."""
        if not 0 <= now_ms - self._looked_ms < LOOK_MS:
            self._looked_ms = now_ms
            self.look(now_ms)

    def remove_old(self, now_ms: int) -> None:
        """Remove all that is too old."""
        while self._remove(self._end_of_old(now_ms)):
            pass

    def look(self, now_ms: int) -> None:
        """Remove some of what is too old; without disk, one more file each time."""
        files, limits = self._store.log.files, self.limits
        if len(files.files) < 2:
            return
        used = self._disk_used()
        if (limits.is_time(now_ms) or used > limits.disk_used_early) and self._remove(self._end_of_old(now_ms)):
            return
        if used > limits.disk_used_max:
            log.warning("the disk is %.0f %% full: removing the oldest file of the log", used * 100)
            self._remove(files.begin + files.file_size)

    def _end_of_old(self, now_ms: int) -> int:
        """The offset before which the first few files are too old; the log's begin if none is."""
        files = self._store.log.files
        end = files.begin
        for _ in range(min(STEP_FILES, len(files.files) - 1)):
            ended_ms = self._ended_ms(end + files.file_size)
            if ended_ms is None or now_ms - ended_ms <= self.limits.reserved_ms:
                break
            end += files.file_size
        return end

    def _remove(self, end: int) -> bool:
        """Remove the files before an offset; True if there were any."""
        begin = self._store.log.files.begin
        if end == begin:
            return False
        self._store.expire(end)
        log.info("messages before offset %d of the log are removed (it began at %d)", end, begin)
        return True

    def _ended_ms(self, offset: int) -> int | None:
        """The time at which the file that ends at an offset was full: the store time of the message behind it."""
        try:
            return self._store.log.read(offset).record.stored_ms
        except (IndexError, FormatError):
            return None
