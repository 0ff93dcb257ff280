# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Takeover of a partition by its new primary: queues and messages are restored in slices.

Until all are restored the partition is not served: relays remain relays, and keep their clients' data; replicas are
healed. If another node becomes primary, or this one under another lease, the takeover is abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.bmq.core.work import Task, Work
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.peaks import Peak, Peaks
from broker.bmq.store.recovery import RecoveredMessage, RecoveredQueue
from broker.bmq.store.removals import Removed, Unreadable
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.errors import FormatError

__all__ = ["PartitionRestoring", "TakeOver"]

# Records examined, and messages restored, for a unit of work.
ROWS_PER_UNIT: Final = 2
MESSAGES_PER_UNIT: Final = 1


class PartitionRestoring(Protocol):
    """The restoring of queues and messages; see `broker.bmq.node.restoring`."""

    def begin(self, queues: Mapping[bytes, RecoveredQueue], newest_s: int) -> None: ...

    def remember(self, key: bytes, guids: bytes) -> None: ...

    def remember_before(self, key: bytes, removed: Removed) -> None: ...

    def take(self, found: RecoveredMessage) -> None: ...

    def peaked(self, key: bytes, app_key: bytes, peak: Peak) -> None: ...

    def end(self) -> None: ...

    def give_up(self) -> None: ...


class TakeOver:
    """One takeover: `done` is called when all is restored, `failed` if files are corrupted, or cannot be read now.

    `newest_s` is the time of the newest record of another primary, in seconds since the epoch.
    """

    def __init__(
        self,
        stored: StoredPartition,
        restoration: PartitionRestoring,
        newest_s: int,
        done: Callable[[PartitionRestoring], None],
        failed: Callable[[FormatError | Unreadable], None],
    ) -> None:
        self._partition = stored
        self._restoration = restoration
        self._newest_s = newest_s
        self._done = done
        self._failed = failed
        self._is_given_up = False

    def begin(self) -> None:
        stored, work = self._partition, self._partition.work
        if work is not None:
            work.start(self._task(work))
        else:
            at_once = Work(stored.now, 1 << 40)
            at_once.complete(self._task(at_once))

    def give_up(self) -> None:
        self._is_given_up = True
        self._restoration.give_up()

    def _task(self, work: Work) -> Task:
        try:
            yield from self._put_back(work)
        except (FormatError, Unreadable) as error:
            self._failed(error)
            return
        if not self._is_given_up:
            self._done(self._restoration)

    def _put_back(self, work: Work) -> Task:
        stored, restoration = self._partition, self._restoration
        recovery = SlicedRecovery(stored.files, remembers=True)
        while not recovery.is_read:
            yield from self._turn(work)
            if self._is_given_up:
                return
            rows = work.left * ROWS_PER_UNIT
            work.left = 0
            recovery.advance(rows)
        restoration.begin(recovery.queues, self._newest_s)
        for removed in stored.removals.before_slowly(stored.files, self._newest_s, stored.now.ms):
            for key, each in removed:
                restoration.remember_before(key, each)
            work.left = 0
            yield from self._turn(work)
            if self._is_given_up:
                return
        while recovery.gone or not recovery.is_told:
            yield from self._turn(work)
            if self._is_given_up:
                return
            if recovery.gone:
                key, guids = recovery.gone.popleft()
                work.left -= 1 + len(guids) // 1024
                restoration.remember(key, guids)
                continue
            rows = work.left * MESSAGES_PER_UNIT
            messages = recovery.messages(rows)
            work.left -= 1 + rows // ROWS_PER_UNIT // 2 + len(messages)
            for message in messages:
                restoration.take(message)
            while recovery.ended:
                stored.removals.note(*recovery.ended.popleft())
        yield from self._tell_peaks(work, Peaks(stored.files, recovery.queues))

    def _tell_peaks(self, work: Work, peaks: Peaks) -> Task:
        while not peaks.is_told:
            yield from self._turn(work)
            if self._is_given_up:
                return
            rows = work.left
            work.left = 0
            try:
                peaks.advance(rows)
            except FormatError:
                return  # DATA of removed messages is damaged
        for found in peaks.found():
            self._restoration.peaked(*found)

    def _turn(self, work: Work) -> Task:
        while not work.may_go_on():
            yield
