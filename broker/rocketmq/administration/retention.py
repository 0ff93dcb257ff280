"""Removal of old messages: by age, and when the disk becomes full (source: CleanCommitLogService).

Whole files of the log are removed, oldest first, and never the last one. A file is as old as its last message. Unlike
the original, unconsumed messages on a full disk are removed only after an alarm has lasted for
`RetentionLimits.forced_after_ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError

__all__ = ["FileRetention", "RetentionLimits"]

log = logging.getLogger("broker.rocketmq.retention")

LOOK_MS: Final = 10_000
# Maximum of files that one step removes.
STEP_FILES: Final = 10


def _at_any_time(now_ms: int) -> bool:
    return True


class RetentionLimits(NamedTuple):
    """The maximum age, and the used parts of the disk (0 to 1) above which the oldest files are removed anyway.

    Old files are removed when `is_time`, or at any time above `disk_used_early`. A file with unconsumed messages is
    removed when an alarm has lasted for `forced_after_ms`, the property `cleanFileForciblyInterval`.
    """

    reserved_ms: int = 72 * 3_600_000
    disk_used_max: float = 0.85
    disk_used_early: float = 0.75
    forced_after_ms: int = 3_600_000
    is_time: Callable[[int], bool] = _at_any_time


def _nothing(end: int) -> Iterator[str]:
    return iter(())


class FileRetention:
    """Removes old files. `disk_used` returns the used part of the disk, from 0 to 1.

    `unconsumed` searches for unconsumed messages before an offset of the log: it yields "" after each piece of work,
    and then a description of the first one.
    """

    def __init__(
        self,
        store: MessageStore,
        limits: RetentionLimits,
        disk_used: Callable[[], float],
        unconsumed: Callable[[int], Iterator[str]] = _nothing,
    ) -> None:
        self._store = store
        self.limits = limits
        self.disk_used = disk_used
        self._unconsumed = unconsumed
        self._search: Iterator[str] | None = None
        self._looked_ms = 0
        self._alarm_ms: int | None = None
        # The unconsumed messages that the full disk will cost soon; "" without an alarm.
        self.alarm = ""

    def tick(self, now_ms: int) -> None:
        """Check the disk every ten seconds; continue a search at each tick."""
        if self._search is not None:
            self._go_on(now_ms)
        elif not 0 <= now_ms - self._looked_ms < LOOK_MS:
            self._looked_ms = now_ms
            self.look(now_ms)

    def remove_old(self, now_ms: int) -> None:
        while self._remove(self._end_of_old(now_ms)):
            pass

    def look(self, now_ms: int) -> None:
        """Remove some of the files that are too old; on a full disk, one more file each time."""
        files, limits = self._store.log.files, self.limits
        if len(files.files) < 2:
            return
        used = self.disk_used()
        if (limits.is_time(now_ms) or used > limits.disk_used_early) and self._remove(self._end_of_old(now_ms)):
            return
        # An alarm lasts until the disk is well below the limit.
        if used > (limits.disk_used_max if self._alarm_ms is None else limits.disk_used_early):
            self._search = self._unconsumed(files.begin + files.file_size)
            self._go_on(now_ms)
        else:
            self._end_alarm()

    def _go_on(self, now_ms: int) -> None:
        """Continue the search for unconsumed messages; at its end, remove the oldest file, or wait."""
        assert self._search is not None
        found = next(self._search, None)
        if found == "":
            return
        self._search = None
        used, files = self.disk_used(), self._store.log.files
        is_over = used > self.limits.disk_used_max and len(files.files) > 1
        if found is None:
            self._end_alarm()
        else:
            is_over = self._raise_alarm(found, used, now_ms) and is_over
        if is_over:
            log.warning("the disk is %.0f %% full: removing the oldest file of the log", used * 100)
            self._remove(files.begin + files.file_size)

    def _raise_alarm(self, found: str, used: float, now_ms: int) -> bool:
        """Raise or keep the alarm; return whether it has lasted for `forced_after_ms`."""
        after_ms = self.limits.forced_after_ms
        if self._alarm_ms is None:
            self._alarm_ms = now_ms
            size = self._store.log.end - self._store.log.begin
            log.error(
                "ALARM: the disk is %.0f %% full, and the oldest file of the log has %s; files go one by one in %d s "
                "(cleanFileForciblyInterval) unless they are consumed or there is room; of the disk, the log has %d "
                "bytes",
                used * 100,
                found,
                after_ms // 1000,
                size,
            )
        self.alarm = found
        return now_ms - self._alarm_ms >= after_ms

    def _end_alarm(self) -> None:
        if self._alarm_ms is not None:
            log.info("the alarm about the full disk is over")
        self._alarm_ms, self.alarm = None, ""

    def _end_of_old(self, now_ms: int) -> int:
        """Return the offset before which the first few files are too old; the log's begin if none is."""
        files = self._store.log.files
        end = files.begin
        for _ in range(min(STEP_FILES, len(files.files) - 1)):
            ended_ms = self._ended_ms(end + files.file_size)
            if ended_ms is None or now_ms - ended_ms <= self.limits.reserved_ms:
                break
            end += files.file_size
        return end

    def _remove(self, end: int) -> bool:
        begin = self._store.log.files.begin
        if end == begin:
            return False
        self._store.expire(end)
        log.info("messages before offset %d of the log are removed (it began at %d)", end, begin)
        return True

    def _ended_ms(self, offset: int) -> int | None:
        """Return when the file that ends at an offset was full: the storing time of the next message."""
        try:
            return self._store.log.read(offset).record.stored_ms
        except (IndexError, FormatError):
            return None
