"""A slave: finds its master, and takes in the master's log (source: DefaultHAClient)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from broker.rocketmq.replication.lifecycles import SLAVE_TRANSITIONS, SlaveEvent, SlaveState
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.taking import LogTaker
from broker.rocketmq.store.copying import Arrived
from broker.rocketmq.store.message_store import MessageStore
from formats.rocketmq.remoting.replication import REPORT, Report, next_piece

__all__ = ["DialMaster", "MasterStream", "Slave", "SlaveStream"]

log = logging.getLogger("broker.rocketmq.replication")

PAUSE_MS: Final = 1_000
# Maximum pause after a refusal, by this slave or by the master. Pauses grow, to keep both logs short.
PAUSE_MS_MAX: Final = 32_000
SOON_MS: Final = 5_000


class DialMaster(Protocol):
    """Connects to an address, HOST:PORT; calls one of the two functions later."""

    def __call__(
        self, address: str, connected: Callable[[str], ReplicationSession], failed: Callable[[str], None]
    ) -> None: ...


class SlaveStream:
    """The slave's end of one connection. `arrived` gets the messages.

    `reach` returns the offset up to which the log may be reported, as in `copies.Copies`.
    """

    def __init__(
        self,
        store: MessageStore,
        options: ReplicationOptions,
        session: ReplicationSession,
        arrived: Arrived,
        ended: Callable[[SlaveStream, str], None],
        reach: Callable[[], int],
    ) -> None:
        self.session = session
        self._reach = reach
        self.reported = -1
        self._store = store
        self._options = options
        self._taker = LogTaker(store, arrived)
        self._ended = ended
        self._wants_report = True
        # True once the master has sent anything: if the logs do not fit, it closes the connection instead.
        self.is_agreed = False
        session.send()

    # -- see `connection.ReplicationEnd`

    def take(self, data: memoryview, at: int, end: int) -> int:
        while (found := next_piece(data, at, end)) is not None:
            piece, at = found
            self.is_agreed = True
            if piece.body:
                self._taker.gather(piece.offset, piece.body)
        # The rest of an incomplete piece is on its way.
        if at == end or self._taker.is_filled:
            self._taker.take()
            self.end_step()
        return at

    def end_step(self) -> None:
        if self._store.log.end > self.reported and self._reach() > self.reported:
            self.session.send()

    def output(self) -> bytearray:
        """Return a report, if one is due. The first one is of the whole log: the rest follows it."""
        end = self._reach()
        if end < self._store.log.end and self.reported < 0:
            return bytearray()
        if end <= self.reported and not self._wants_report:
            return bytearray()
        end = max(end, self.reported)
        self.reported, self._wants_report = end, False
        return bytearray(REPORT.pack(Report(end)))

    def has_output(self) -> bool:
        return False

    def ended(self, session: ReplicationSession, reason: str) -> None:
        self._ended(self, reason)

    def tick(self) -> None:
        """Repeat the report, which the master expects, if nothing was reported for a while."""
        if self.session.idle_ms >= self._options.heartbeat_ms:
            self._wants_report = True
            self.session.send()


class MasterStream(Protocol):
    """The slave's end of one connection, in either form."""

    session: ReplicationSession

    @property
    def is_agreed(self) -> bool:
        """True if the master continues where this log ends."""
        ...

    def end_step(self) -> None: ...
    def tick(self) -> None: ...


S = TypeVar("S", bound=MasterStream)


class Slave(Generic[S]):
    """A slave, with its connection to the master, if any.

    `open_session` makes the connection's session. `make_stream` makes its end here, which calls the function given when
    it is over.
    """

    def __init__(
        self,
        log_end: Callable[[], int],
        dial: DialMaster,
        open_session: Callable[[str, Callable[[ReplicationSession], S]], ReplicationSession],
        make_stream: Callable[[ReplicationSession, Callable[[S, str], None]], S],
        now_ms: Callable[[], int],
    ) -> None:
        self.state = SlaveState.ALONE
        self.stream: S | None = None
        self.master: str | None = None
        self._log_end = log_end
        self._dial = dial
        self._open_session = open_session
        self._new_stream = make_stream
        self._now_ms = now_ms
        self._dialed_ms = 0
        self._pause_ms = PAUSE_MS
        # The time of the last connection, and the end of the log then.
        self._connected_ms = self._connected_end = 0
        self._reason = ""

    @property
    def is_agreed(self) -> bool:
        """True if the master continues where this log ends.

        Until then its other data must not be followed: it may be an empty broker in the old one's place.
        """
        return self.stream is not None and self.stream.is_agreed

    def follow(self, master: str) -> None:
        if master == self.master or self.state is SlaveState.STOPPED:
            return
        log.info("the master's log is at %s", master)
        stream = self.stream
        if stream is None and self.state is not SlaveState.DIALING:
            # First, as an address that cannot be dialed changes nothing.
            self._begin_dialing(master)
        self.master = master
        self._pause_ms = PAUSE_MS
        self._enter(SlaveEvent.MASTER)
        if stream is not None:
            self.stream = None
            stream.session.give_up("another master is known")

    def _enter(self, event: SlaveEvent) -> None:
        self.state = SLAVE_TRANSITIONS[self.state, event]

    def _begin_dialing(self, master: str) -> None:
        self._dialed_ms = self._now_ms()
        self._dial(master, self._connected, self._failed)

    def _connected(self, address: str) -> ReplicationSession:
        session = self._open_session(address, self._make_stream)
        if self.state is SlaveState.STOPPED:
            session.give_up("the broker stops")
        elif address != self.master:
            # Another master became known during the dialing.
            self.state = SLAVE_TRANSITIONS[self.state, SlaveEvent.FAILED]
            self._forget(session)
        else:
            self._enter(SlaveEvent.CONNECTED)
            self._reason = ""
            self._connected_ms, self._connected_end = self._now_ms(), self._log_end()
            log.info("connected to master %s; this log ends at %d", address, self._connected_end)
        return session

    def _forget(self, session: ReplicationSession) -> None:
        self.stream = None
        session.give_up("another master is known")

    def _make_stream(self, session: ReplicationSession) -> S:
        self.stream = stream = self._new_stream(session, self._lost)
        return stream

    def _failed(self, reason: str) -> None:
        if self.state is SlaveState.STOPPED:
            return
        self._enter(SlaveEvent.FAILED)
        if reason != self._reason:
            self._reason = reason
            log.warning("master %s cannot be reached: %s; trying again", self.master, reason)

    def _lost(self, stream: S, reason: str) -> None:
        if stream is not self.stream:
            return
        self.stream = None
        if self.state is SlaveState.FOLLOWING:
            self._enter(SlaveEvent.LOST)
            self._dialed_ms = now_ms = self._now_ms()
            is_vain = now_ms - self._connected_ms < SOON_MS and self._log_end() == self._connected_end
            self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX) if is_vain else PAUSE_MS
            log.warning("the connection to master %s is lost: %s", self.master, reason or "the master has closed it")

    def tick(self) -> None:
        if self.stream is not None:
            self.stream.tick()
        elif self.state is SlaveState.PAUSING and self._now_ms() - self._dialed_ms >= self._pause_ms:
            assert self.master is not None
            self._begin_dialing(self.master)
            self._enter(SlaveEvent.DUE)

    def end_step(self) -> None:
        if self.stream is not None:
            self.stream.end_step()

    def stop(self) -> None:
        if self.state is not SlaveState.STOPPED:
            self._enter(SlaveEvent.STOP)
            if self.stream is not None:
                self.stream.session.give_up("the broker stops")
