"""A master: the slaves that connect to it, and the senders that wait for them; see `node.Part`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from broker.rocketmq.node import Connection
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.copies import Copies
from broker.rocketmq.replication.streams.entrance import StreamEntrance
from broker.rocketmq.replication.waiting import WaitingSenders
from broker.rocketmq.store.message_store import MessageStore
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.replication import HaRuntime

__all__ = ["OpenOther", "ReplicationMaster"]

C = TypeVar("C", bound=Connection)


class OpenOther(Protocol):
    """Makes the session of a connection that does not speak the remoting protocol; see `Node.open_other`."""

    def __call__(self, peer: str, make: Callable[[int, Host], C]) -> C: ...


class ReplicationMaster:
    """The slaves of a broker. `changed` gets sessions that have output; `now_ms` never goes back.

    See `Copies` for `reach`, and `ReplicationSession` for `make_entrance`. Where a slave may act as master, `alive`
    returns the number of this name's brokers that nameservers know.
    """

    def __init__(
        self,
        store: MessageStore,
        options: ReplicationOptions,
        open_other: OpenOther,
        changed: Callable[[ReplicationSession], None],
        now_ms: Callable[[], int],
        reach: Callable[[], int],
        alive: Callable[[], int] | None = None,
        make_entrance: Callable[[ReplicationSession], StreamEntrance | None] = lambda session: None,
    ) -> None:
        self._alive = alive
        self._make_entrance = make_entrance
        self._store = store
        self._options = options
        self._open_other = open_other
        self._changed = changed
        self._now_ms = now_ms
        self.copies = Copies(store.log, options, self._moved, reach)
        self.waiting = WaitingSenders(options, self.copies, now_ms, None if alive is None else self.in_sync)

    def in_sync(self) -> int:
        """Return the number of brokers in sync and known to nameservers, this one included."""
        in_sync = self.copies.in_sync()
        return in_sync if self._alive is None else min(in_sync, self._alive())

    def connect(self, peer: str, certified: Callable[[], frozenset[str]]) -> ReplicationSession:
        def make(number: int, host: Host) -> ReplicationSession:
            return ReplicationSession(
                number, host, self._options, self._changed, self._now_ms, self.copies.add, self._make_entrance
            )

        return self._open_other(peer, make)

    def _moved(self) -> None:
        self.waiting.moved()

    def status(self) -> HaRuntime:
        found = self.copies.status()
        return HaRuntime(True, self._store.log.end, sum(each.in_sync for each in found), found)

    def end_step(self) -> bool:
        self.copies.end_step()
        return False

    def tick(self) -> None:
        self.copies.tick(self._now_ms())
        self.waiting.tick()

    def leave(self) -> None:
        """Do nothing: slaves see that the connection is closed."""
