# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Peaks of a journal's last minute: how far queues and their apps exceeded their levels at its end.

A replica does not count levels. After a takeover the new primary walks over the newest records once, in slices. Older
messages count as present throughout, with the apps that still want them: a peak may be too low, but never too high.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import RecoveredQueue, data_headers, record_keys
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    ConfirmReason,
    QueueOpType,
    RecordType,
    scan,
    select,
)
from formats.bmq.disk.keys import KEY_SIZE, NULL_KEY
from formats.bmq.disk.padding import DWORD

__all__ = ["Peak", "Peaks"]

# The default period of statistics, and the maximum number of its records examined.
WINDOW_S: Final = 60
RECORDS_MAX: Final = 1 << 14

_MESSAGE, _CONFIRM, _DELETION = int(RecordType.MESSAGE), int(RecordType.CONFIRM), int(RecordType.DELETION)
_QUEUE_OP: Final = int(RecordType.QUEUE_OP)


class Peak(NamedTuple):
    """The highest level minus the level at the end."""

    messages: int
    bytes: int


class _Level:
    __slots__ = ("bytes", "messages", "most_bytes", "most_messages")

    def __init__(self) -> None:
        self.messages = self.bytes = self.most_messages = self.most_bytes = 0

    def rise(self, size: int) -> None:
        self.messages += 1
        self.bytes += size
        if self.messages > self.most_messages:
            self.most_messages = self.messages
        if self.bytes > self.most_bytes:
            self.most_bytes = self.bytes

    def fall(self, size: int) -> None:
        self.messages -= 1
        self.bytes -= size


class _QueuePeaks(NamedTuple):
    """Levels of a queue and its apps; `since` has the first row whose messages are for an app that was added later."""

    own: _Level
    apps: dict[bytes, _Level]
    since: Mapping[bytes, int]


class _Message(NamedTuple):
    """A remaining message: its size, its queue's level, and the levels of the apps that want it."""

    size: int
    own: _Level
    apps: dict[bytes, _Level]


class Peaks:
    """The walk over the newest records; `queues` are those at the journal's end.

    Nothing may be added to the files before it `is_told`.
    """

    def __init__(self, files: PartitionFiles, queues: Mapping[bytes, RecoveredQueue]) -> None:
        self._files = files
        self._queues = {
            key: _QueuePeaks(_Level(), {app.app_key: _Level() for app in queue.apps}, queue.since)
            for key, queue in queues.items()
        }
        self._first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
        self._rows = (files.journal_end - self._first) // JOURNAL_RECORD_SIZE
        self._row = self._begin()
        self._here: dict[bytes, _Message] = {}  # by queue key and GUID
        # Automatic confirms, for apps that a message's subscriptions leave out, come before or after the message.
        self._early: dict[bytes, set[bytes]] = {}

    def _begin(self) -> int:
        first = max(0, self._rows - RECORDS_MAX)
        if first == self._rows:
            return first
        since_s = self._time_of(self._rows - 1) - WINDOW_S
        return bisect_left(range(self._rows), since_s, lo=first, key=self._time_of)

    def _time_of(self, row: int) -> int:
        return ANY_RECORD.unpack(self._files.journal.buffer, self._first + row * JOURNAL_RECORD_SIZE).timestamp

    @property
    def is_told(self) -> bool:
        return self._row == self._rows

    def advance(self, rows: int) -> None:
        """Examine up to `rows` records. Raises FormatError if DATA lacks their messages."""
        start, count = self._row, min(rows, self._rows - self._row)
        records = scan(self._files.journal.buffer, self._first + start * JOURNAL_RECORD_SIZE, count)
        found, _ = select(records, RecordType.MESSAGE)
        offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype(np.int64) * DWORD
        messages = zip(record_keys(found), data_headers(self._files, offsets)[0], strict=True)
        found, _ = select(records, RecordType.CONFIRM)
        reasons = CONFIRM_RECORD.column(found, "reason") == ConfirmReason.AUTO_CONFIRMED
        confirms = zip(record_keys(found), found["app_key"].tolist(), reasons.tolist(), strict=True)
        found, _ = select(records, RecordType.DELETION)
        deletions = iter(record_keys(found))
        found, _ = select(records, RecordType.QUEUE_OP)
        ops = iter([QUEUE_OP_RECORD.unpack(raw.tobytes()) for raw in found])
        for row, kind in enumerate(ANY_RECORD.column(records, "type").tolist(), start):
            if kind == _MESSAGE:
                self._arrive(*next(messages), row)
            elif kind == _CONFIRM:
                self._confirm(*next(confirms))
            elif kind == _DELETION:
                self._leave(next(deletions))
            elif kind == _QUEUE_OP:
                op = next(ops)
                if op.queue_op_type == QueueOpType.PURGE:
                    self._purge(op.queue_key, op.app_key)
        self._row += count

    def found(self) -> Iterator[tuple[bytes, bytes, Peak]]:
        """Yield queue key, app key (null for the queue itself) and peak of all that exceeded their final level."""
        for key, queue in self._queues.items():
            for app_key, level in ((NULL_KEY, queue.own), *queue.apps.items()):
                peak = Peak(level.most_messages - level.messages, level.most_bytes - level.bytes)
                if any(peak):
                    yield key, app_key, peak

    def _arrive(self, key: bytes, size: int, row: int) -> None:
        queue = self._queues.get(key[:KEY_SIZE])
        if queue is None:
            return
        if key in self._here:
            self._leave(key)
        apps, since = queue.apps.copy(), queue.since
        for app_key in self._early.pop(key, ()):
            apps.pop(app_key, None)
        for app_key in since:
            if since[app_key] > row:
                apps.pop(app_key, None)
        queue.own.rise(size)
        for level in apps.values():
            level.rise(size)
        self._here[key] = _Message(size, queue.own, apps)

    def _confirm(self, key: bytes, app_key: bytes, is_auto: bool) -> None:
        message = self._here.get(key)
        if message is not None:
            level = message.apps.pop(app_key, None)
            if level is not None:
                level.fall(message.size)
        elif is_auto:
            self._early.setdefault(key, set()).add(app_key)

    def _leave(self, key: bytes) -> None:
        message = self._here.pop(key, None)
        if message is not None:
            message.own.fall(message.size)
            for level in message.apps.values():
                level.fall(message.size)

    def _purge(self, queue_key: bytes, app_key: bytes) -> None:
        for key in [key for key in self._here if key.startswith(queue_key)]:
            if app_key == NULL_KEY:
                self._leave(key)
            else:
                self._confirm(key, app_key, False)
