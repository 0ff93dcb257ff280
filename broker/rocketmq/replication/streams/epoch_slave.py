"""A slave's end of the stream in its form with epochs (source: AutoSwitchHAClient).

The slave introduces itself, and receives the master's epochs. It cuts its log where the two diverge, and requests the
master's from there on. Each epoch is in its file before the first of its records is in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.epochs import (
    EpochBook,
    LogSpan,
    begin_epoch,
    consistent_point,
    cut_epochs,
    last_epoch,
)
from broker.rocketmq.replication.streams.taking import LogTaker
from broker.rocketmq.store.copying import Arrived
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.remoting.replication import (
    EPOCH_REPORT,
    SLAVE_HANDSHAKE,
    EpochReport,
    EpochTransfer,
    HaState,
    MasterEpochs,
    SlaveHandshake,
    next_from_master,
)

__all__ = ["EpochSlaveStream", "SlaveListener"]

log = logging.getLogger("broker.rocketmq.replication")


class SlaveListener(NamedTuple):
    """The calls that report the results of a stream.

    `arrived` gets the messages; `confirmed` the offset up to which the log is confirmed, at most its end; `cut` the
    offset at which the log was cut.
    """

    arrived: Arrived
    confirmed: Callable[[int], None]
    cut: Callable[[int], None]


class EpochSlaveStream:
    """One connection; see `connection.ReplicationEnd`. `reach` is as in `SlaveStream`."""

    def __init__(
        self,
        store: MessageStore,
        epochs: EpochBook,
        broker_id: int,
        options: ReplicationOptions,
        session: ReplicationSession,
        listener: SlaveListener,
        ended: Callable[[EpochSlaveStream, str], None],
        reach: Callable[[], int],
    ) -> None:
        self._reach = reach
        self.session = session
        self.reported = -1
        # The master's epochs, once received.
        self.master_epochs: list[EpochEntry] | None = None
        self._store = store
        self._epochs = epochs
        self._broker_id = broker_id
        self._options = options
        self._taker = LogTaker(store, listener.arrived)
        self._confirmed = -1
        self._listener = listener
        self._ended = ended
        self._owes_handshake = True
        self._owes_report = False
        session.send()

    @property
    def is_agreed(self) -> bool:
        """True once this log has been cut by the master's epochs."""
        return self.master_epochs is not None

    def take(self, data: memoryview, at: int, end: int) -> int:
        """Take in the master's epochs, then the pieces of its log, and report the end of this one."""
        while (found := next_from_master(data, at, end)) is not None:
            said, at = found
            if isinstance(said, MasterEpochs):
                self._align(said.epochs, said.head.offset)
            elif self.master_epochs is None:
                raise FormatError("EpochTransfer", 0, "the master has not sent its epochs")
            else:
                self._take_piece(self.master_epochs, said.head, said.body)
        if at == end or self._taker.is_filled:
            self._taker.take(self._confirmed)
            self._listener.confirmed(min(self._confirmed, self._store.log.end))
            self.end_step()
        return at

    def end_step(self) -> None:
        if self.master_epochs is None:
            return
        if self._owes_report or (self._store.log.end > self.reported and self._reach() > self.reported):
            self.session.send()

    def _align(self, theirs: list[EpochEntry], their_end: int) -> None:
        if self.master_epochs is not None:
            raise FormatError("EpochHandshake", 0, "the master sends its epochs again")
        end = self._store.log.end
        point: int | None = 0
        if self._store.log.files.files and end:
            point = consistent_point(LogSpan(self._epochs.entries, end), LogSpan(theirs, their_end))
        if point is None and not self._store.confirmed:
            # A log without anything confirmed loses nothing; both logs have the same begin.
            point = 0
        if point is None:
            raise FormatError(
                "EpochHandshake.epochs",
                0,
                "this log has no epoch in common with the master's; empty this broker's store, unless its log is the "
                "right one",
            )
        if point < end:
            log.warning("the master's log is another one from offset %d on: %d bytes are cut here", point, end - point)
            try:
                self._store.truncate(point)
            except (ValueError, DiskFull) as error:
                raise FormatError("EpochHandshake.epochs", 0, f"the log cannot be cut at {point}: {error}") from None
            self._listener.cut(point)
        self._replace(cut_epochs(self._epochs.entries, point))
        self.master_epochs = theirs
        self._owes_report = True

    def _take_piece(self, theirs: list[EpochEntry], head: EpochTransfer, body: memoryview) -> None:
        if head.epoch > last_epoch(theirs):
            try:
                theirs = self.master_epochs = begin_epoch(theirs, head.epoch, head.epoch_offset)
            except ValueError as error:
                raise FormatError("EpochTransfer.epoch", 0, str(error)) from None
        # By the master's list: the original numbers the last piece of an epoch as the next one.
        self._replace(cut_epochs(theirs, max(self._store.log.end + 1, head.offset + len(body))))
        if body:
            self._taker.gather(head.offset, body)
        self._confirmed = head.confirm_offset

    def _replace(self, entries: list[EpochEntry]) -> None:
        try:
            self._epochs.replace(entries)
        except OSError as error:
            raise FormatError("EpochFile", 0, f"it cannot be written: {error.strerror}") from None

    def output(self) -> bytearray:
        """Return the introduction, or a report if one is due.

        The first report is of the whole log: the rest follows it.
        """
        if self._owes_handshake:
            self._owes_handshake = False
            from_last = 1 if self._options.from_last_file else 0
            return bytearray(SLAVE_HANDSHAKE.pack(SlaveHandshake(HaState.HANDSHAKE, from_last, 0, self._broker_id)))
        if self.master_epochs is None:
            return bytearray()
        end = self._reach()
        if (end < self._store.log.end and self.reported < 0) or (end <= self.reported and not self._owes_report):
            return bytearray()
        end = max(end, self.reported)
        self.reported, self._owes_report = end, False
        return bytearray(EPOCH_REPORT.pack(EpochReport(HaState.TRANSFER, end)))

    def has_output(self) -> bool:
        return False

    def ended(self, session: ReplicationSession, reason: str) -> None:
        self._ended(self, reason)

    def tick(self) -> None:
        if self.master_epochs is not None and self.session.idle_ms >= self._options.heartbeat_ms:
            self._owes_report = True
            self.session.send()
