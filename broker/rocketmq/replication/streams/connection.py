"""One connection of a replication stream, without its socket: the code common to both ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from broker.common.standing import Standing
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.entrance import StreamEntrance
from formats.errors import FormatError
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.replication import BODY_BYTES_MAX

__all__ = ["ReplicationEnd", "ReplicationSession"]

log = logging.getLogger("broker.rocketmq.replication")

# More than a piece with its header.
_EVENT_BYTES_MAX = BODY_BYTES_MAX + 64
# Maximum input before admission; slaves send less.
_HELD_BYTES_MAX = 4096


class ReplicationEnd(Protocol):
    """The side of a stream that a session belongs to: a master's view of a slave, or a slave."""

    def take(self, data: memoryview, at: int, end: int) -> int:
        """Take the whole structures at the front of `data[at:end]`; return where the first incomplete one begins.

        Raises `FormatError` for an invalid structure, or one that does not fit this log.
        """
        ...

    def output(self) -> bytearray:
        """Return the next bytes to send, and count them as sent."""
        ...

    def has_output(self) -> bool: ...

    def ended(self, session: ReplicationSession, reason: str) -> None: ...


class ReplicationSession:
    """A connection to a slave or to a master at `host`. `changed` is called when there is output.

    `now_ms` is a clock that never goes back. The end from `make_end` receives and sends nothing until the entrance from
    `make_entrance` has admitted the other side.
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
        make_entrance: Callable[[ReplicationSession], StreamEntrance | None] = lambda session: None,
    ) -> None:
        self.session_id = session_id
        self.host = host
        self.reason = ""
        self.finished = False
        # Neither end's input waits for its output.
        self.paused = False
        self.input_can_wait = False
        self.backlog_bytes_max = 1 << 62
        self.event_bytes_max = _EVENT_BYTES_MAX
        self.standing = Standing.STRANGER
        self._options = options
        self._changed = changed
        self._now_ms = now_ms
        self._heard_ms = self._written_ms = now_ms()
        # Input that waits for admission, and output of the entrance.
        self._held = bytearray()
        self._owed = bytearray()
        self._entrance = self._passed = make_entrance(self)
        self._end = make_end(self)
        if self._entrance is not None:
            changed(self)

    @property
    def description(self) -> str:
        return f"{self.host}#{self.session_id}"

    @property
    def heard_ms(self) -> int:
        """The time at which something was last received."""
        return self._heard_ms

    @property
    def idle_ms(self) -> int:
        """The time in ms for which nothing was sent."""
        return self._now_ms() - self._written_ms

    def receive(self, data: memoryview) -> int:
        """Handle the whole structures at the front of `data`; return their size in bytes."""
        if self.finished:
            return len(data)
        self._heard_ms = self._now_ms()
        try:
            if self._entrance is None and not self._held:
                at = self._end.take(data, 0, len(data))
            else:
                at = len(data)
                self._held += data
                self._take_held()
            if at and self._entrance is None:
                self.standing = Standing.CLIENT
            return at
        except FormatError as error:
            self._refuse(error)
        return len(data)

    def go_on(self) -> None:
        if not self.finished:
            try:
                self._take_held()
            except FormatError as error:
                self._refuse(error)

    def refuse_id(self, broker_id: int) -> str | None:
        """Return why the other end cannot be the broker with this id; None if it can."""
        return None if self._passed is None else self._passed.refuse_id(broker_id)

    def _refuse(self, error: FormatError) -> None:
        log.error("%s: replication ends: %s", self.description, error)
        self.give_up(str(error))

    def _take_held(self) -> None:
        if self._entrance is not None:
            has_begun = self._entrance.take(self._held)
            self._owed += self._entrance.output()
            if not has_begun:
                if len(self._held) > _HELD_BYTES_MAX:
                    raise FormatError("Entrance", 0, f"it has sent {len(self._held)} bytes before it was let in")
                self.send()
                return
            self._entrance = None
            self.send()
        with memoryview(bytes(self._held)) as data:
            taken = self._end.take(data, 0, len(data))
        del self._held[:taken]

    def send(self) -> None:
        if not self.finished:
            self._changed(self)

    def take_output(self) -> bytearray:
        if self.finished:
            return bytearray()
        if self._entrance is not None:
            self._owed += self._entrance.output()
        data, self._owed = self._owed, bytearray()
        if self._entrance is None:
            data += self._end.output()
        if data:
            self._written_ms = self._now_ms()
        return data

    def output_size(self) -> int:
        """Return 0: output is made when it is taken."""
        return 0

    def memory_size(self) -> int:
        """Return the size of the input that waits for admission."""
        return len(self._held)

    def output_sent(self) -> None:
        if not self.finished and self._entrance is None and self._end.has_output():
            self._changed(self)

    def tick(self) -> None:
        if self._now_ms() - self._heard_ms > self._options.silence_ms:
            self.give_up(f"nothing was received from it for {self._options.silence_ms // 1000} s")

    def give_up(self, reason: str) -> None:
        if self.finished:
            return
        self.finished = True
        self.reason = reason
        self._changed(self)

    def end(self) -> None:
        self.finished = True
        self._end.ended(self, self.reason)
