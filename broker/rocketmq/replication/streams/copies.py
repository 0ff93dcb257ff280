"""A master's view of its slaves: how far each is, and which part of the log it gets next.

Source: DefaultHAConnection, DefaultHAService. A slave reports the end of its log. From there on it gets the master's
log in pieces, as fast as its connection takes them, and repeats its report as it progresses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.rocketmq.replication.lifecycles import COPY_TRANSITIONS, CopyEvent, CopyState
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.store.commit_log import CommitLog
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.replication import HaConnection
from formats.rocketmq.remoting.replication import TRANSFER, Transfer, next_report

__all__ = ["Copies", "Copy"]

log = logging.getLogger("broker.rocketmq.replication")

# Maximum size of the pieces that one step sends on a connection.
STEP_BYTES: Final = 256 << 10
SECOND_MS: Final = 1000
_NEW_SLAVE: Final = 0


class Copy:
    """The copy of the log at one slave. `acknowledged` is its end; -1 before the first report.

    `reach` returns the offset up to which the slave may have the log.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        options: ReplicationOptions,
        session: ReplicationSession,
        moved: Callable[[], None],
        ended: Callable[[Copy], None],
        reach: Callable[[], int],
    ) -> None:
        self._reach = reach
        self.session = session
        self.acknowledged = -1
        self.next_offset = -1
        self.state = CopyState.WAITING
        self._log = commit_log
        self._options = options
        self._moved = moved
        self._ended = ended
        self._wants_heartbeat = False
        # Bytes sent in this second, and in the last.
        self._sent = self.rate = 0
        self._rated_ms = 0

    def _enter(self, event: CopyEvent) -> None:
        self.state = COPY_TRANSITIONS[self.state, event]

    # -- see `connection.ReplicationEnd`

    def take(self, data: memoryview, at: int, end: int) -> int:
        """Handle reports of the slave: the last one counts, and its first one is where to begin."""
        last = None
        while (found := next_report(data, at, end)) is not None:
            report, at = found
            if self.state is CopyState.WAITING:
                self._begin(report.offset)
            last = report.offset
        if last is not None and last != self.acknowledged:
            self._acknowledge(last)
        return at

    def _begin(self, offset: int) -> None:
        begin, end = self._log.begin, self._log.end
        if offset == _NEW_SLAVE:
            self.next_offset = end - end % self._log.files.file_size if self._options.from_last_file else begin
        elif begin <= offset <= end:
            self.next_offset = offset
        else:
            self._enter(CopyEvent.REFUSED)
            raise FormatError(
                "Report.offset",
                0,
                f"the slave's log ends at {offset}, and this one is from {begin} to {end}; empty the store of the "
                "slave, unless its log is the right one",
            )
        self._enter(CopyEvent.REPORTED)
        log.info("slave %s gets the log from offset %d on", self.session.description, self.next_offset)
        if self.has_output():
            self.session.send()

    def _acknowledge(self, offset: int) -> None:
        # A new slave, which has nothing, may start later than at the begin of the log.
        if offset > self.next_offset:
            self._enter(CopyEvent.REFUSED)
            raise FormatError(
                "Report.offset", 0, f"offset {offset} was not sent, only what is before {self.next_offset}"
            )
        if offset < self.acknowledged:
            self._enter(CopyEvent.REFUSED)
            raise FormatError("Report.offset", 0, f"offset {offset} is below {self.acknowledged}, which was reported")
        self._enter(CopyEvent.REPORTED)
        self.acknowledged = offset
        self._moved()

    def output(self) -> bytearray:
        data = bytearray()
        if self.state is not CopyState.COPYING:
            return data
        end = self._reach()
        while len(data) < STEP_BYTES and self.next_offset < end:
            if self.next_offset < self._log.begin:
                self.session.give_up(f"offset {self.next_offset}, which it needs next, has been deleted here")
                return bytearray()
            file, place = self._log.files.place(self.next_offset)
            left = min(self._log.files.file_size - place, end - self.next_offset)
            size = min(left, self._options.piece_bytes)
            data += TRANSFER.pack(Transfer(self.next_offset, size))
            data += file.buffer[place : place + size]
            self.next_offset += size
        if not data and self._wants_heartbeat:
            data += TRANSFER.pack(Transfer(self.next_offset, 0))
        self._wants_heartbeat = False
        self._sent += len(data)
        return data

    def has_output(self) -> bool:
        return self.state is CopyState.COPYING and self.next_offset < self._log.end and self.next_offset < self._reach()

    def ended(self, session: ReplicationSession, reason: str) -> None:
        if self.state is not CopyState.CLOSED:
            self._enter(CopyEvent.SILENT if reason else CopyEvent.LOST)
        self._ended(self)

    # -- the master's clock

    def tick(self, now_ms: int) -> None:
        """Send a heartbeat, which the slave expects, if nothing else was sent for a while."""
        if now_ms - self._rated_ms >= SECOND_MS:
            self.rate = self._sent * SECOND_MS // (now_ms - self._rated_ms)
            self._sent, self._rated_ms = 0, now_ms
        if self.state is CopyState.COPYING and self.session.idle_ms >= self._options.heartbeat_ms:
            self._wants_heartbeat = True
            self.session.send()

    def is_in_sync(self, end: int) -> bool:
        return self.acknowledged >= 0 and end - self.acknowledged < self._options.gap_bytes_max


class Copies:
    """All slaves of a master. `moved` is called when one has acknowledged more.

    `reach` returns the offset up to which slaves may have the log: what is on the disk, if senders wait for the disk.
    It does not block, and reaches the present end of the log some steps later.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        options: ReplicationOptions,
        moved: Callable[[], None],
        reach: Callable[[], int],
    ) -> None:
        self._reach = reach
        self._log = commit_log
        self._options = options
        self._moved = moved
        self._copies: list[Copy] = []
        self._told_end = 0

    def add(self, session: ReplicationSession) -> Copy:
        copy = Copy(self._log, self._options, session, self._moved, self._remove, self._reach)
        self._copies.append(copy)
        log.info("slave %s connects", session.description)
        return copy

    def _remove(self, copy: Copy) -> None:
        self._copies.remove(copy)
        log.warning("slave %s is gone: %s", copy.session.description, copy.session.reason or "it has disconnected")
        self._moved()

    def replicas_with(self, end: int) -> int:
        """Return the number of brokers that have the log up to `end`, this one included."""
        return 1 + sum(copy.acknowledged >= end for copy in self._copies)

    def in_sync(self) -> int:
        """Return the number of brokers in sync, this one included."""
        end = self._log.end
        return 1 + sum(copy.is_in_sync(end) for copy in self._copies)

    def acknowledged_by(self, replicas: int) -> int:
        """Return the offset up to which `replicas` brokers have the log, this one included; -1 if there are fewer."""
        found = sorted((copy.acknowledged for copy in self._copies), reverse=True)
        if replicas <= 1:
            return self._log.end
        return found[replicas - 2] if len(found) >= replicas - 1 else -1

    def end_step(self) -> None:
        """Send what the step has added to the log, or flushed to the disk."""
        if self._copies and self._log.end != self._told_end:
            reach = self._reach()
            if reach != self._told_end:
                self._told_end = reach
                for copy in self._copies:
                    if copy.has_output():
                        copy.session.send()

    def tick(self, now_ms: int) -> None:
        for copy in self._copies:
            copy.tick(now_ms)

    def status(self) -> list[HaConnection]:
        end = self._log.end
        return [
            HaConnection(
                str(each.session.host),
                each.acknowledged,
                end - each.acknowledged,
                each.is_in_sync(end),
                each.rate,
                each.next_offset,
            )
            for each in self._copies
        ]
