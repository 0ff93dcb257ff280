# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The steps of the loop: passes the input of links to their sessions, and sends the output of the steps.

A link whose input can wait, such as a consumer's confirms, becomes patient when it is read twice within a millisecond:
the poller no longer watches it for input. Rounds with other causes read it instead, once a millisecond, which saves a
round for nearly every message. It is watched again when it had nothing to read, had other input, or no round came for a
moment (`rest`).

Nothing here waits, so it can be compiled (see packaging/compiled.toml); `broker.shell.loop.server` has the asynchronous
part.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, cast

from broker.common.clock import Now
from broker.common.limited_log import SECOND_MS, LimitedLog
from broker.shell.connections.accepted import AcceptedConnections
from broker.shell.connections.account import Account
from broker.shell.connections.link import Link
from broker.shell.connections.system import MadeSession, System
from broker.shell.host.calls import READABLE, WRITABLE, Poller

__all__ = ["Rounds", "set_clock"]

log = logging.getLogger("broker.server")

_IN: Final = int(READABLE)
_OUT: Final = int(WRITABLE)
_FAILED: Final = ~(_IN | _OUT)

# Maximum output, in bytes, of the links read in a round: producing and sending it takes about 5 ms. Further links are
# read in the next round.
FRESH_BYTES_MAX: Final = 8 << 20


def set_clock(now: Now) -> None:
    """Set a system's time. Records have no times before 1970: an earlier clock counts as that."""
    wall = max(0.0, time.time())
    seconds = int(wall)
    now.wall_s = seconds
    now.part_ms = int((wall - seconds) * 1000)
    now.ms = time.monotonic_ns() // 1_000_000


class Rounds:
    """The links of a node, by descriptor, and the steps of their sessions.

    `on_other` handles a ready descriptor that is not a link's, `wake` has another step taken, and `set_clock` sets the
    system's time. Links whose memory exceeds the bounds of `account` are closed.
    """

    def __init__(
        self,
        node: System,
        poller: Poller,
        on_other: Callable[[int], None],
        wake: Callable[[], None],
        set_clock: Callable[[Now], None] = set_clock,
        account: Account | None = None,
    ) -> None:
        self.links: dict[int, Link] = {}
        self._node = node
        self._poller = poller
        self._on_other = on_other
        self._wake = wake
        self._set_clock = set_clock
        self._by_session: dict[MadeSession, Link] = {}
        self._masks: dict[int, int] = {}
        self._patient: list[Link] = []
        self._patience_ms = 0  # time at which the patient links were last read
        self.is_long = False  # the last round took a slice of long work: there is more
        self._owing: list[Link] = []  # links that have read the front of an event
        self.account = account or Account()
        self.accepted = AcceptedConnections()
        self._closed = LimitedLog(log, logging.ERROR, SECOND_MS, "#TCP_CONNECTION_CLOSED ")
        self._fresh_bytes = 0  # output of the links that were read since the last `flush`
        self._left: list[tuple[int, int]] = []  # ready descriptors that the last round has left to the next

    def take(self, timeout_s: float) -> bool:
        """Take a round of steps as soon as a descriptor is ready. Return False if none is in the time."""
        left, self._left = self._left, []
        # By now a descriptor that was left may be another's, or watched for less. The poller reports the others again.
        ready = [(fd, mask & (self._masks[fd] | _FAILED)) for fd, mask in left if fd in self.links]
        if not ready:
            ready = self._poller.poll(timeout_s)
        if not ready:
            return False
        now = self._node.now
        self._set_clock(now)
        for number, (fd, mask) in enumerate(ready, 1):
            self.on_ready(fd, mask)
            if self._fresh_bytes > FRESH_BYTES_MAX:
                self._left = ready[number:]
                break
        if self._patient and now.ms != self._patience_ms:
            self._read_patient(now.ms)
        self.is_long = self.flush()
        # Nearly always the output of the steps has acknowledged the fronts of events that they left.
        while self._owing:
            self._acknowledge(self._owing.pop())
        return True

    def take_last(self, rounds: int) -> None:
        for _ in range(rounds):
            self._end_patience()
            ready = self._poller.poll(0)
            if not ready:
                break
            self._set_clock(self._node.now)
            for fd, mask in ready:
                if fd in self.links:
                    self.on_ready(fd, mask)
            self.flush()

    def on_ready(self, fd: int, mask: int) -> None:
        link = self.links.get(fd)
        if link is None:
            self._on_other(fd)
            return
        if mask & _OUT:
            # It may send the output of this round's steps.
            self._node.before_sending()
        try:
            if mask & _OUT:
                link.on_writable()
                self._watch(fd, link)
            if mask & ~_OUT and not link.is_over:
                self._read(fd, link)
        except Exception as error:
            self._fail(link, error)

    def _read(self, fd: int, link: Link) -> None:
        # Without a check that the link is not over: mypyc would assume the same after the read, too.
        before = link.backlog if link.wants_write else 0
        link.on_readable()
        if link.owes_acknowledgment:
            self._owing.append(link)
        backlog = link.backlog
        if backlog > before:
            self._fresh_bytes += backlog - before
        if link.is_over or link.machine.paused or backlog > link.machine.backlog_bytes_max:
            self._watch(fd, link)
            return
        now_ms = self._node.now.ms
        if link.read_ms == now_ms and not link.is_patient and link.machine.input_can_wait:
            link.is_patient = True
            if not self._patient:
                self._patience_ms = now_ms
            self._patient.append(link)
            self._watch(fd, link)
        link.read_ms = now_ms

    def _read_patient(self, now_ms: int) -> None:
        """Read the patient links; one that had nothing to read, or other input, is watched again."""
        self._patience_ms = now_ms
        links, self._patient = self._patient, []
        for link in links:
            if link.is_patient:
                try:
                    self._read_again(link)
                except Exception as error:
                    self._fail(link, error)

    def _read_again(self, link: Link) -> None:
        has_read = link.on_readable()
        if link.owes_acknowledgment:
            self._owing.append(link)
        if has_read and not link.is_over and link.wants_read and link.machine.input_can_wait:
            self._patient.append(link)
        else:
            link.is_patient = False
            self._watch(link.fd, link)

    def _end_patience(self) -> None:
        links, self._patient = self._patient, []
        for link in links:
            if link.is_patient:
                link.is_patient = False
                self._watch(link.fd, link)

    def _acknowledge(self, link: Link) -> None:
        try:
            link.acknowledge()
        except Exception as error:
            self._fail(link, error)

    def _fail(self, link: Link, error: Exception) -> None:
        session = cast(MadeSession, link.machine)
        self._node.faults.end_session(session, error)
        self._node.end_failed()
        if self.links.get(link.fd) is link:
            self._end(link, "a fault of this broker")

    def add(self, link: Link) -> None:
        fd = link.fd
        self.links[fd] = self._by_session[cast(MadeSession, link.machine)] = link
        self._masks[fd] = _IN
        self._poller.register(fd, _IN)
        link.read_ms = self._node.now.ms
        if link.address:
            self.accepted.add(link)

    def _watch(self, fd: int, link: Link) -> None:
        if link.ended is not None:
            self._end(link, link.ended)
            return
        mask = (_IN if link.wants_read and not link.is_patient else 0) | (_OUT if link.wants_write else 0)
        if self._masks[fd] != mask:
            self._masks[fd] = mask
            self._poller.modify(fd, mask)

    def close(self, link: Link, reason: str) -> None:
        session = cast(MadeSession, link.machine)
        self._closed.add(f"{session.description}: {reason}", self._node.now.ms)
        self._end(link, reason)

    def _relieve(self) -> None:
        for link, reason in self.account.to_close():
            self.close(cast(Link, link), reason)

    def _end(self, link: Link, reason: str) -> None:
        fd = link.fd
        link.release()
        self.accepted.discard(link)
        link.is_patient = False
        del self.links[fd], self._masks[fd]
        self._poller.unregister(fd)
        link.sock.close()
        session = cast(MadeSession, link.machine)
        del self._by_session[session]
        self._node.disconnect(session, reason)

    def end_all(self, reason: str) -> None:
        for link in list(self.links.values()):
            self._end(link, reason)

    def flush(self) -> bool:
        """Send the output of the last steps; return True if long work continues in slices."""
        node, resumed = self._node, False
        self._fresh_bytes = 0
        failed = node.faults.failed
        if failed:
            node.end_failed()
        has_tasks, unfinished = node.end_step()
        dirty = node.dirty
        while dirty:
            link = self._by_session.get(dirty.pop())
            if link is not None:
                node.before_sending()
                try:
                    fd = link.fd
                    if not link.flush() or (self._masks[fd] != _IN and not link.is_patient):
                        self._watch(fd, link)
                    if link.resumed:
                        link.resumed, resumed = False, True
                except Exception as error:
                    self._fail(link, error)
            if failed:
                node.end_failed()
        if self.account.is_over:
            self._relieve()
        # Taking held input is a step of its own, which has to end, too.
        if resumed or has_tasks or (unfinished and not self._waits_for_brokers()):
            self._wake()
        return has_tasks

    def rest(self) -> None:
        """Send what the steps left to go with later output, and watch the patient links: there may be none for long."""
        self._end_patience()
        if self._node.rest():
            self.flush()

    def _waits_for_brokers(self) -> bool:
        """Return True if a link to a broker cannot take more for now: it becomes ready again by itself."""
        clients = self._node.sessions
        return any(link.wants_write and session.session_id not in clients for session, link in self._by_session.items())
