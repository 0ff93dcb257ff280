"""Senders that wait until enough brokers have their messages (source: GroupTransferService, CommitLog.handleHA)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.rocketmq.replication.options import ReplicationOptions, Role

__all__ = ["ALL_IN_SYNC", "WAITING_MAX", "Acknowledged", "WaitingSenders", "replicas_needed"]

# Instead of a number: all brokers in sync, by the controller's set.
ALL_IN_SYNC: Final = -1

# Further senders are answered as if their time were over.
WAITING_MAX: Final = 100_000


def replicas_needed(options: ReplicationOptions, in_sync: int) -> int:
    """Return how many brokers must have a message with `in_sync` in sync, where a slave may act as master."""
    if not options.auto_in_sync:
        return options.in_sync_replicas
    return max(min(options.in_sync_replicas, in_sync), options.in_sync_replicas_min)


class Acknowledged(Protocol):
    """The slaves of a master."""

    def acknowledged_by(self, replicas: int) -> int:
        """Return the offset up to which `replicas` brokers, the master included, have the log; -1 for fewer."""
        ...


class _Waiter(NamedTuple):
    end: int
    until_ms: int
    owner: object
    done: Callable[[bool], None]


class WaitingSenders:
    """All waiting senders, in the order of the log. `now_ms` is a clock that never goes back.

    `in_sync` returns the number of brokers in sync, if the number of copies depends on it.
    """

    def __init__(
        self,
        options: ReplicationOptions,
        copies: Acknowledged,
        now_ms: Callable[[], int],
        in_sync: Callable[[], int] | None = None,
    ) -> None:
        self._in_sync = in_sync
        self._options = options
        self._copies = copies
        self._now_ms = now_ms
        self._waiters: dict[int, deque[_Waiter]] = {}
        self._count = 0

    @property
    def is_wanted(self) -> bool:
        return self._options.role is Role.SYNC_MASTER and self._replicas not in (0, 1)

    @property
    def _replicas(self) -> int:
        options = self._options
        if options.is_controlled:
            return ALL_IN_SYNC if options.all_in_sync else options.in_sync_replicas
        return options.in_sync_replicas if self._in_sync is None else replicas_needed(options, self._in_sync())

    def __len__(self) -> int:
        return self._count

    def wait(self, end: int, owner: object, done: Callable[[bool], None]) -> None:
        """Call `done` with True once enough brokers have the log up to `end`, or with False when the time is over.

        The call may come at once. `owner` identifies the waits for `forget`.
        """
        replicas = self._replicas
        if self._copies.acknowledged_by(replicas) >= end:
            done(True)
        elif self._count >= WAITING_MAX:
            done(False)
        else:
            until_ms = self._now_ms() + self._options.slave_timeout_ms
            self._waiters.setdefault(replicas, deque()).append(_Waiter(end, until_ms, owner, done))
            self._count += 1

    def moved(self) -> None:
        for replicas, waiters in list(self._waiters.items()):
            copied = self._copies.acknowledged_by(replicas)
            while waiters and waiters[0].end <= copied:
                self._release(replicas, waiters, is_copied=True)

    def tick(self) -> None:
        now_ms = self._now_ms()
        for replicas, waiters in list(self._waiters.items()):
            while waiters and waiters[0].until_ms <= now_ms:
                self._release(replicas, waiters, is_copied=False)

    def _release(self, replicas: int, waiters: deque[_Waiter], *, is_copied: bool) -> None:
        waiter = waiters.popleft()
        self._count -= 1
        if not waiters:
            self._waiters.pop(replicas, None)
        waiter.done(is_copied)

    def end(self) -> None:
        """Release all senders: this broker is no longer master, and may drop its stored messages."""
        for replicas, waiters in list(self._waiters.items()):
            while waiters:
                self._release(replicas, waiters, is_copied=False)

    def forget(self, owner: object) -> None:
        for replicas, waiters in list(self._waiters.items()):
            rest = deque(waiter for waiter in waiters if waiter.owner is not owner)
            self._count -= len(waiters) - len(rest)
            if rest:
                self._waiters[replicas] = rest
            else:
                del self._waiters[replicas]
