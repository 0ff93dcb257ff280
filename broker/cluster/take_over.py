"""A node becomes a shard's primary: its queues and messages are put back, in slices between which others are served.

Until all are there the shard is nobody's: hops stay what they are, and keep what they are given; replicas are healed;
whoever is told meanwhile that another node is primary, or this one under another lease, gives up what is half done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from broker.core.shard import Shard
from broker.core.work import Task, Work
from broker.store.recovery import RecoveredMessage, RecoveredQueue
from broker.store.removals import Removed, Unreadable
from broker.store.sliced_recovery import SlicedRecovery
from formats.errors import FormatError

__all__ = ["Restoration", "TakeOver"]

# So many records are looked at for a unit of work, and so many messages put back.
ROWS_PER_UNIT = 2
MESSAGES_PER_UNIT = 1


class Restoration(Protocol):
    """The restoring of queues and messages; see `broker.core.restoring`."""

    def begin(self, queues: Mapping[bytes, RecoveredQueue], newest_s: int) -> None: ...

    def remember(self, key: bytes, guids: bytes) -> None: ...

    def remember_before(self, key: bytes, removed: Removed) -> None: ...

    def take(self, found: RecoveredMessage) -> None: ...

    def end(self) -> None: ...

    def give_up(self) -> None:
        """Remove what was put back, as this node does not become primary."""
        ...


class TakeOver:
    """One such: `done` is called when all is put back, `failed` if the files have rotted, or cannot all be read now.

    The newest record of another primary is of `newest_s`, in seconds since the epoch.
    """

    def __init__(
        self,
        shard: Shard,
        restoration: Restoration,
        newest_s: int,
        done: Callable[[Restoration], None],
        failed: Callable[[FormatError | Unreadable], None],
    ) -> None:
        self._shard = shard
        self._restoration = restoration
        self._newest_s = newest_s
        self._done = done
        self._failed = failed
        self._is_given_up = False

    def begin(self) -> None:
        """Do it, in slices where there are such."""
        shard, work = self._shard, self._shard.work
        if work is not None:
            work.start(self._task(work))
        else:
            at_once = Work(shard.now, 1 << 40)
            at_once.complete(self._task(at_once))

    def give_up(self) -> None:
        """Another node is primary, or this one begins anew."""
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
        shard, restoration = self._shard, self._restoration
        recovery = SlicedRecovery(shard.files, remembers=True)
        while not recovery.is_read:
            yield from self._turn(work)
            if self._is_given_up:
                return
            rows = work.left * ROWS_PER_UNIT
            work.left = 0
            recovery.advance(rows)
        restoration.begin(recovery.queues, self._newest_s)
        for removed in shard.removals.before_slowly(shard.files, self._newest_s, shard.now.ms):
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

    def _turn(self, work: Work) -> Task:
        """Wait until there is something left to do."""
        while not work.may_go_on():
            yield
