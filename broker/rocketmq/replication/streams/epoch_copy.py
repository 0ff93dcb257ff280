"""A master's view of a slave, in the form of the stream with epochs (source: AutoSwitchHAConnection).

The slave introduces itself, receives the epochs of this log, cuts its own by them, and reports the end of its log. From
there on it gets the log in pieces of one epoch each, with the confirmed offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.rocketmq.replication.lifecycles import EPOCH_COPY_TRANSITIONS, CopyEvent, CopyState
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.epochs import EpochBook, epoch_end, epoch_of
from broker.rocketmq.replication.streams.in_sync import InSyncSet
from broker.rocketmq.store.commit_log import CommitLog
from formats.errors import FormatError
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.remoting.bodies.replication import HaConnection
from formats.rocketmq.remoting.replication import (
    EPOCH_TRANSFER,
    EPOCHS_MAX,
    EpochTransfer,
    HaState,
    SlaveHandshake,
    encode_epoch_handshake,
    next_from_slave,
)

__all__ = ["EpochCopies", "EpochCopy"]

log = logging.getLogger("broker.rocketmq.replication")

# Maximum size of the pieces that one step sends on a connection.
STEP_BYTES: Final = 256 << 10
_NEW_SLAVE: Final = 0
_NO_EPOCH: Final = EpochEntry(-1, 0)


class EpochCopy:
    """The copy of the log at one slave; see `connection.ReplicationEnd`. `broker_id` is -1 before it is known.

    `reach` is as in `copies.Copy`.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        epochs: EpochBook,
        in_sync: InSyncSet,
        options: ReplicationOptions,
        session: ReplicationSession,
        now_ms: Callable[[], int],
        ended: Callable[[EpochCopy], None],
        reach: Callable[[], int],
    ) -> None:
        self._reach = reach
        self.session = session
        self.broker_id = self.acknowledged = self.next_offset = -1
        self.state = CopyState.WAITING
        self._log = commit_log
        self._epochs = epochs
        self._in_sync = in_sync
        self._options = options
        self._now_ms = now_ms
        self._ended = ended
        self._from_last_file = self._owes_greeting = self._owes_heartbeat = False
        self._told_confirmed = -1
        # The slave's permitted end of the log at the last sending, and the time of that.
        self._sent_end, self._sent_ms = -1, now_ms()

    def _enter(self, event: CopyEvent) -> None:
        self.state = EPOCH_COPY_TRANSITIONS[self.state, event]

    def _refuse(self, path: str, reason: str) -> FormatError:
        self._enter(CopyEvent.REFUSED)
        return FormatError(path, 0, reason)

    def take(self, data: memoryview, at: int, end: int) -> int:
        last = None
        while (found := next_from_slave(data, at, end)) is not None:
            said, at = found
            if isinstance(said, SlaveHandshake):
                self._greet(said)
                continue
            if self.state is CopyState.GREETED:
                self._begin(said.offset)
            elif self.state is not CopyState.COPYING:
                raise self._refuse("EpochReport", "the slave has not introduced itself")
            last = said.offset
        if last is not None:
            self._acknowledge(last)
        return at

    def _greet(self, said: SlaveHandshake) -> None:
        if self.state is CopyState.COPYING:
            raise self._refuse("SlaveHandshake", "the slave introduces itself once more")
        if said.broker_id == self._in_sync.own_id:
            raise self._refuse("SlaveHandshake.broker_id", f"{said.broker_id} is the id of this broker")
        refusal = self.session.refuse_id(said.broker_id)
        if refusal is not None:
            raise self._refuse("SlaveHandshake.broker_id", refusal)
        self._enter(CopyEvent.INTRODUCED)
        self.broker_id, self._from_last_file = said.broker_id, said.from_last_file == 1
        self._in_sync.joined(said.broker_id, self, is_learner=said.is_learner == 1)
        self._owes_greeting = True
        self.session.send()

    def _begin(self, offset: int) -> None:
        begin, end = self._log.begin, self._log.end
        if offset == _NEW_SLAVE:
            self.next_offset = end - end % self._log.files.file_size if self._from_last_file else begin
        elif begin <= offset <= end:
            self.next_offset = offset
        else:
            raise self._refuse(
                "EpochReport.offset", f"the slave's log ends at {offset}, and this one is from {begin} to {end}"
            )
        self._enter(CopyEvent.REPORTED)
        log.info("slave %d gets the log from offset %d on", self.broker_id, self.next_offset)
        self.session.send()

    def _acknowledge(self, offset: int) -> None:
        if offset > self.next_offset:
            raise self._refuse(
                "EpochReport.offset", f"offset {offset} was not sent, only what is before {self.next_offset}"
            )
        if offset < self.acknowledged:
            raise self._refuse(
                "EpochReport.offset", f"offset {offset} is below {self.acknowledged}, which was reported"
            )
        self.acknowledged = offset
        if offset >= self._sent_end:
            self._in_sync.caught_up(self.broker_id, self, self._sent_ms)
        self._note_caught_up()
        self._in_sync.acknowledged(self.broker_id, self, offset)

    def _note_caught_up(self) -> None:
        if self.acknowledged >= self._reach():
            self._in_sync.caught_up(self.broker_id, self, self._now_ms())

    def output(self) -> bytearray:
        data = bytearray()
        if self._owes_greeting:
            self._owes_greeting = False
            # The oldest are left out: the logs are surely the same there.
            data += encode_epoch_handshake(self._log.end, self._epochs.entries[-EPOCHS_MAX:])
        if self.state is not CopyState.COPYING:
            return data
        is_empty = True
        end = self._reach()
        while len(data) < STEP_BYTES and self.next_offset < end:
            if self.next_offset < self._log.begin:
                self.session.give_up(f"offset {self.next_offset}, which it needs next, has been deleted here")
                return bytearray()
            self._put_piece(data, end)
            is_empty = False
        if is_empty and (self._owes_heartbeat or self._in_sync.confirmed != self._told_confirmed):
            data += self._head(0)
        self._owes_heartbeat = False
        return data

    def _put_piece(self, data: bytearray, end: int) -> None:
        file, place = self._log.files.place(self.next_offset)
        entry = epoch_of(self._epochs.entries, self.next_offset)
        bound = end
        behind = None if entry is None else epoch_end(self._epochs.entries, entry.epoch)
        if behind is not None:
            bound = min(bound, behind)
        size = min(self._log.files.file_size - place, bound - self.next_offset, self._options.piece_bytes)
        data += self._head(size)
        data += file.buffer[place : place + size]
        self.next_offset += size
        self._sent_end, self._sent_ms = end, self._now_ms()

    def _head(self, size: int) -> bytes:
        entries = self._epochs.entries
        # Records before the first epoch are sent as part of it.
        entry = epoch_of(entries, self.next_offset) or (entries[0] if entries else _NO_EPOCH)
        self._told_confirmed = confirmed = self._in_sync.confirmed
        return EPOCH_TRANSFER.pack(
            EpochTransfer(HaState.TRANSFER, size, self.next_offset, entry.epoch, entry.start_offset, confirmed)
        )

    def has_output(self) -> bool:
        if self.state is not CopyState.COPYING:
            return self._owes_greeting
        if self._in_sync.confirmed != self._told_confirmed:
            return True
        return self.next_offset < self._log.end and self.next_offset < self._reach()

    def ended(self, session: ReplicationSession, reason: str) -> None:
        if self.state is not CopyState.CLOSED:
            self._enter(CopyEvent.SILENT if reason else CopyEvent.LOST)
        if self.broker_id >= 0:
            self._in_sync.left(self.broker_id, self)
        self._ended(self)

    def tick(self) -> None:
        if self.state is CopyState.COPYING:
            self._note_caught_up()
            if self.session.idle_ms >= self._options.heartbeat_ms:
                self._owes_heartbeat = True
                self.session.send()


class EpochCopies:
    """All slaves of a master with epochs; `reach` is as in `copies.Copies`."""

    def __init__(
        self,
        commit_log: CommitLog,
        epochs: EpochBook,
        in_sync: InSyncSet,
        options: ReplicationOptions,
        now_ms: Callable[[], int],
        reach: Callable[[], int],
    ) -> None:
        self._reach = reach
        self._log = commit_log
        self._epochs = epochs
        self._in_sync = in_sync
        self._options = options
        self._now_ms = now_ms
        self._copies: list[EpochCopy] = []
        self._told = (0, in_sync.confirmed)

    def add(self, session: ReplicationSession) -> EpochCopy:
        copy = EpochCopy(
            self._log,
            self._epochs,
            self._in_sync,
            self._options,
            session,
            self._now_ms,
            self._copies.remove,
            self._reach,
        )
        self._copies.append(copy)
        return copy

    def end_step(self) -> None:
        self._in_sync.advance()
        told = (self._reach(), self._in_sync.confirmed)
        if told != self._told:
            self._told = told
            for copy in self._copies:
                if copy.has_output():
                    copy.session.send()

    def status(self) -> list[HaConnection]:
        members, end = self._in_sync.members, self._log.end
        return [
            HaConnection(
                str(each.session.host),
                each.acknowledged,
                end - each.acknowledged,
                each.broker_id in members,
                0,
                each.next_offset,
            )
            for each in self._copies
        ]

    def close(self) -> None:
        for copy in list(self._copies):
            copy.session.give_up("another broker is master")

    def tick(self) -> None:
        for copy in list(self._copies):
            copy.tick()
        self._in_sync.tick()
