# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""All connections of one process, to its nameserver and to its broker, as one system behind the loop.

See `broker.shell.connections.system.System`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from broker.common.clock import Now
from broker.common.faults import Change, Failing, Faults, Inconsistent
from broker.common.standing import Standing
from broker.common.timers import Timers
from broker.rocketmq.remoting.session import Gate, Service, Session
from broker.rocketmq.remoting.step_time import StepTime
from formats.errors import FormatError
from formats.rocketmq.hosts import Host

__all__ = ["Connection", "Node", "Part"]

log = logging.getLogger("broker.rocketmq.session")

TICK_MS: Final = 1000


class Connection(Failing, Protocol):
    """A session of any protocol; see `broker.shell.connections.link.Machine` for its bytes."""

    reason: str

    @property
    def session_id(self) -> int: ...

    def receive(self, data: memoryview) -> int: ...
    def take_output(self) -> bytearray: ...
    def output_size(self) -> int: ...
    def output_sent(self) -> None: ...

    @property
    def backlog_bytes_max(self) -> int: ...

    @property
    def paused(self) -> bool: ...

    @property
    def input_can_wait(self) -> bool: ...

    @property
    def event_bytes_max(self) -> int: ...

    @property
    def keeps_more(self) -> bool: ...

    @property
    def standing(self) -> int: ...

    def memory_size(self) -> int: ...

    def tick(self) -> None:
        """Do the work that is due, once a second."""
        ...

    def end(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Part(Protocol):
    """A part of the process that has work of its own: the broker, the nameserver."""

    def end_step(self) -> bool:
        """Do the work that the step's requests have caused, before anything is sent; return True if there is more."""
        ...

    def tick(self) -> None:
        """Do the work that is due, a few times a second."""
        ...

    def leave(self) -> None: ...


class Node:
    """The connections. `clock_ns` measures the time that requests take; see `StepTime`."""

    def __init__(self, now: Now, faults: Faults, timers: Timers, clock_ns: Callable[[], int] = lambda: 0) -> None:
        self.now = now
        self.faults = faults
        self.timers = timers
        self.sessions: dict[int, Connection] = {}
        self.dirty: set[Connection] = set()
        self.stopping = False
        self.step_time = StepTime(clock_ns)
        self._parts: list[Part] = []
        self._session_ids = 0
        self._ticked_ms = now.ms

    def before_sending(self) -> None:
        """Do nothing: output that waits for the disk waits at its connection's gate."""

    def add(self, part: Part) -> None:
        self._parts.append(part)

    def connect_to(
        self, service: Service, gate: Gate | None = None
    ) -> Callable[[str, Callable[[], frozenset[str]]], Session]:
        """Return the function that makes sessions with a service; their output passes the gate."""
        return lambda peer, certified: self._open(peer, service, gate, Standing.STRANGER)

    def connect(self, peer: str, certified: Callable[[], frozenset[str]]) -> Session:
        """Refuse: each listener has a service of its own."""
        raise FormatError("Node", 0, "a listener without a service")

    def open(self, peer: str, service: Service, gate: Gate | None = None) -> Session:
        """Make the session of a remoting connection that this node has dialed."""
        return self._open(peer, service, gate, Standing.PEER)

    def _open(self, peer: str, service: Service, gate: Gate | None, standing: Standing) -> Session:
        def make(number: int, host: Host) -> Session:
            now_ms = lambda: self.now.ms  # noqa: E731
            return Session(number, host, service, self.dirty.add, now_ms, gate, standing, self.step_time)

        return self.open_other(peer, make)

    def open_other(self, peer: str, make: Callable[[int, Host], C]) -> C:
        """Make the session of a connection that speaks another protocol, from its number and the other end."""
        self._session_ids += 1
        address, _, port = peer.rpartition(":")
        session = make(self._session_ids, Host(address.partition("%")[0], int(port)))
        self.sessions[session.session_id] = session
        log.debug("%s connects", session.description)
        return session

    def disconnect(self, session: Connection, reason: str) -> None:
        with Change(f"the end of session {session.description}"):
            log.debug("%s: %s", session.description, session.reason or reason)
            self.sessions.pop(session.session_id, None)
            session.end()
            self.dirty.discard(session)

    def end_failed(self) -> None:
        while (session := self.faults.next_failed()) is not None:
            session.give_up("a fault of this broker")

    def end_step(self) -> tuple[bool, bool]:
        has_more = self.step_time.end_step()
        for part in self._parts:
            try:
                has_more = part.end_step() or has_more
            except Exception as error:
                raise Inconsistent("the end of a step", error) from error
        return has_more, False

    def rest(self) -> bool:
        return False

    def tick(self) -> None:
        self.timers.run(self.now.ms)
        for part in self._parts:
            try:
                part.tick()
            except Exception as error:
                self.faults.note("what was due", error)
        if self.now.ms - self._ticked_ms >= TICK_MS:
            self._ticked_ms = self.now.ms
            for session in list(self.sessions.values()):
                session.tick()

    def retire(self) -> bool:
        """Return True, as no other node takes over."""
        return True

    def awaits_confirms(self) -> bool:
        """Return False, as consumers acknowledge to the broker when it is back."""
        return False

    def leave(self) -> None:
        for part in self._parts:
            try:
                part.leave()
            except Exception as error:
                self.faults.note("the farewell", error)
