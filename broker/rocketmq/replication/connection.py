"""One connection of a replication stream, without its socket: what both of its ends have in common.

See `broker.shell.link.Machine`, and `broker.rocketmq.node.Connection`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from broker.common.standing import Standing
from broker.rocketmq.replication.options import ReplicationOptions
from formats.errors import FormatError
from formats.rocketmq.hosts import Host
from formats.rocketmq.replication import BODY_BYTES_MAX

__all__ = ["ReplicationEnd", "ReplicationSession"]

log = logging.getLogger("broker.rocketmq.replication")

# More than a piece with its header.
_EVENT_BYTES_MAX = BODY_BYTES_MAX + 64


class ReplicationEnd(Protocol):
    """The side of a stream that a session belongs to: a master's view of one slave, or a slave."""

    def take(self, data: memoryview, at: int, end: int) -> int:
        """Take the whole structures at the front of `data[at:end]`; where the first that is not whole begins.

        Raises `FormatError` for what cannot be one, or is not for this log.
        """
        ...

    def output(self) -> bytearray:
        """Return what is to be sent next, and count it as sent."""
        ...

    def has_output(self) -> bool:
        """Return whether there is anything to be sent."""
        ...

    def ended(self, session: ReplicationSession, reason: str) -> None:
        """Note that the connection is closed."""
        ...


class ReplicationSession:
    """A connection, to a slave or to a master; `host` is the other end. `changed` is told that something is to be sent.

    `now_ms` is a clock that never goes back.
    """

    keeps_more = False

    def __init__(
        self,
        session_id: int,
        host: Host,
        options: ReplicationOptions,
        changed: Callable[[ReplicationSession], None],
        now_ms: Callable[[], int],
        make_end: Callable[[ReplicationSession], ReplicationEnd],
    ) -> None:
        self.session_id = session_id
        self.host = host
        self.reason = ""
        self.finished = False
        # Nothing that a slave or a master says waits for what it is sent.
        self.paused = False
        self.input_can_wait = False
        self.backlog_bytes_max = 1 << 62
        self.event_bytes_max = _EVENT_BYTES_MAX
        self.standing = Standing.STRANGER
        self._options = options
        self._changed = changed
        self._now_ms = now_ms
        self._heard_ms = self._written_ms = now_ms()
        self._end = make_end(self)

    @property
    def description(self) -> str:
        """The session, for people."""
        return f"{self.host}#{self.session_id}"

    @property
    def heard_ms(self) -> int:
        """The time at which something was last heard."""
        return self._heard_ms

    @property
    def idle_ms(self) -> int:
        """The time for which nothing was sent."""
        return self._now_ms() - self._written_ms

    def receive(self, data: memoryview) -> int:
        """Handle the whole structures at the front of `data`; the number of bytes that they took."""
        if self.finished:
            return len(data)
        self._heard_ms = self._now_ms()
        try:
            at = self._end.take(data, 0, len(data))
            if at:
                self.standing = Standing.CLIENT
            return at
        except FormatError as error:
            log.error("%s: replication ends: %s", self.description, error)
            self.give_up(str(error))
            return len(data)

    def send(self) -> None:
        """Have the end's output sent."""
        if not self.finished:
            self._changed(self)

    def take_output(self) -> bytearray:
        """Take the output to be sent."""
        if self.finished:
            return bytearray()
        data = self._end.output()
        if data:
            self._written_ms = self._now_ms()
        return data

    def output_size(self) -> int:
        """Return 0: output is made when it is taken."""
        return 0

    def memory_size(self) -> int:
        """Return 0, as there is neither output nor a rest of the input."""
        return 0

    def output_sent(self) -> None:
        """Go on, if there is more."""
        if not self.finished and self._end.has_output():
            self._changed(self)

    def tick(self) -> None:
        """Give up a connection on which nothing was heard for too long."""
        if self._now_ms() - self._heard_ms > self._options.silence_ms:
            self.give_up(f"nothing was received from it for {self._options.silence_ms // 1000} s")

    def give_up(self, reason: str) -> None:
        """End at once."""
        if self.finished:
            return
        self.finished = True
        self.reason = reason
        self._changed(self)

    def end(self) -> None:
        """Note that the connection is closed."""
        self.finished = True
        self._end.ended(self, self.reason)
