"""The loop around a node, which is any `System`: listeners, links, the clock, and the signals that end it.

All sockets are in one poller of our own, and trio waits for that: a task and a re-armed wait for every read cost more
than the messages in it. Trio handles the signals, the clock's tick and the shutdown.

An unexpected exception in a session's step ends that session (`broker.common.faults`); only `Inconsistent` ends
`Server.run`.
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, cast

import trio

from broker.common.faults import Change, Inconsistent
from broker.common.limited_log import SECOND_MS, LimitedLog
from broker.common.networks import Network
from broker.shell.connections.account import Account
from broker.shell.connections.dialing import Connected, Dialed, Dials, Endpoint
from broker.shell.connections.greetings import Address, Greetings
from broker.shell.connections.link import READ_BYTES, Link
from broker.shell.connections.listening import ListenError, listen
from broker.shell.connections.reloading import TlsContext
from broker.shell.connections.system import MadeSession, System
from broker.shell.connections.tls import EitherStream, TlsLink, TlsStream, accept_tls
from broker.shell.host.calls import HOST, READABLE
from broker.shell.loop.rounds import Rounds, set_clock
from broker.shell.process.os_errors import os_error_line

__all__ = ["ListenError", "Listener", "Server", "listen", "run_server"]

log = logging.getLogger("broker.server")

TICK_S = 0.1
# Minimum time between ticks, however many actions are due.
TICK_S_MIN = 0.005

# Rounds in which a stopping node reads data that peers have already sent, such as confirms.
LAST_ROUNDS = 16

STOPS = (signal.SIGTERM, signal.SIGINT)

# As in the reference's configuration (mqbcfg::TcpInterfaceConfig).
CONNECTIONS_MAX = 10_000

# Maximum numbers of threads that resolve names, of threads for other blocking work, and of peers being authenticated,
# including peers that wait for a thread. The configuration limits the threads that authenticate.
LOOKUPS_MAX = 8
WORKERS_MAX = 8
AUTHENTICATIONS_MAX = 1_000

# Time that a stopping node waits for others to take over, and the interval of its checks. The wait for confirms has a
# limit of its own.
RETIRE_S = 5.0
RETIRE_CHECK_S = 0.02

# Time of rounds of ready sockets before trio's other tasks get their turn.
TURN_MS = 8

# After a round, the poller itself waits for the next one for these times: returning to trio for every read costs more
# than the read. Trio's tasks (a tick a second, signals) can wait for them. Between the two, input and output that could
# wait for the next round no longer do.
MOMENT_S = 0.001
LINGER_S = 0.002

T = TypeVar("T")


class Waker:
    """A source that becomes readable when woken, so that another step is taken."""

    work = "waking the loop"

    def __init__(self) -> None:
        self._wakener = HOST.wakener()

    def fileno(self) -> int:
        return self._wakener.fileno()

    def wake(self) -> None:
        self._wakener.set()

    def on_readable(self) -> None:
        self._wakener.clear()

    def close(self) -> None:
        self._wakener.close()


class Listener(NamedTuple):
    """An address that peers connect to, with the TLS context used there (None for plain connections).

    `connect` makes their sessions if a system has several ways to do so; see `System.connect`. `takes_plain`: peers
    that do not begin with TLS are served without it.
    """

    sock: socket.socket
    tls: TlsContext | None = None
    connect: Callable[[str, Callable[[], frozenset[str]]], MadeSession] | None = None
    takes_plain: bool = False


class EventSource(Protocol):
    """A source of events other than a socket; `work` describes, for people, the work that its events cause."""

    work: str

    def fileno(self) -> int: ...
    def on_readable(self) -> None: ...


class Server:
    """Carries bytes between sockets and the sessions of a system, and sets the system's time.

    A step reads at most `read_bytes` from a connection: with larger values other connections wait longer. `account`
    bounds the memory of accepted connections. Connections from `balancers` begin with a header of the PROXY protocol.
    """

    def __init__(
        self,
        node: System,
        listeners: Iterable[Listener],
        threads_max: int = 8,
        connections_max: int = CONNECTIONS_MAX,
        read_bytes: int = READ_BYTES,
        account: Account | None = None,
        balancers: tuple[Network, ...] = (),
    ) -> None:
        self._node = node
        self._poller = HOST.poller()
        self._sources: dict[int, EventSource] = {}
        self._waker = Waker()
        self.watch(self._waker)
        self._stop = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self.is_retiring = False
        self._beside: list[Callable[[], Awaitable[None]]] = []
        self._making = 0
        self._failure: Inconsistent | None = None
        self._connections_max = connections_max
        self._refusals = LimitedLog(log, logging.ERROR, SECOND_MS, "#TCP_CONNECTION_REFUSED ")
        self._authenticators = trio.CapacityLimiter(threads_max)
        self._authenticating = 0
        # Slow authenticators must not delay name resolution or writes to the disk.
        self._resolvers = trio.CapacityLimiter(LOOKUPS_MAX)
        self._workers = trio.CapacityLimiter(WORKERS_MAX)
        self._listeners = {listener.sock.fileno(): listener for listener in listeners}
        self._dials = Dials(self._poller, self.look_up, self._on_dialed)
        self._greetings = Greetings(self._poller, balancers, lambda text: self._refusals.add(text, node.now.ms))
        self._rounds = Rounds(node, self._poller, self._on_other, self._waker.wake, account=account)
        self._scratch = memoryview(bytearray(read_bytes))

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until SIGTERM, SIGINT or `stop`. Raises `Inconsistent` if the node cannot continue."""
        for fd in self._listeners:
            self._poller.register(fd, READABLE)
        with trio.open_signal_receiver(*STOPS) as signals, self._stop:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._tick)
                nursery.start_soon(self._serve)
                for work in self._beside:
                    nursery.start_soon(work)
                on_ready()
                async for number in signals:
                    log.info("stopping on %s", signal.Signals(number).name)
                    self.retire()
        self._nursery = None
        try:
            if self._failure is not None:
                raise self._failure
            with Change("the stop of the node"):
                self._say_farewell()
        finally:
            self._close()

    def retire(self) -> None:
        """Stop as soon as others have taken over, or after a time limit; at once if called again."""
        if self.is_retiring or self._nursery is None:
            self.stop()
        else:
            self.is_retiring = True
            self._nursery.start_soon(self._retire)

    async def _retire(self) -> None:
        until = trio.current_time() + RETIRE_S
        with self._boundary("the node's retirement"):
            while not self._may_stop():
                if trio.current_time() >= until and not self._node.awaits_confirms():
                    break
                await trio.sleep(RETIRE_CHECK_S)
        self.stop()

    @contextmanager
    def _boundary(self, work: str) -> Iterator[None]:
        """End `run` on any exception that gets here, since it leaves the node inconsistent."""
        try:
            yield
        except Inconsistent as failure:
            self._give_up(failure)
        except Exception as error:
            self._give_up(Inconsistent(work, error))

    def _give_up(self, failure: Inconsistent) -> None:
        if self._failure is None:
            self._failure = failure
        self.stop()

    def _may_stop(self) -> bool:
        self._set_clock()
        with Change("handing over to others"):
            may = self._node.retire()
        self._flush()
        return may

    def watch(self, source: EventSource) -> None:
        """Read `source` in the same loop, with steps like any other."""
        self._sources[source.fileno()] = source
        self._poller.register(source.fileno(), READABLE)

    def serve_beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task of trio's beside the node, from the start of `run` to its end."""
        self._beside.append(work)

    @contextmanager
    def making_page(self) -> Iterator[None]:
        """Let trio's other tasks run after each round while one of them makes a page."""
        self._making += 1
        try:
            yield
        finally:
            self._making -= 1

    def stop(self) -> None:
        self._stop.cancel()

    def _say_farewell(self) -> None:
        """Process data that peers have already sent, and send the node's last output."""
        self._rounds.take_last(LAST_ROUNDS)
        self._set_clock()
        self._node.stopping = True
        self._node.leave()
        self._flush()
        self._rounds.end_all("the node stops")

    def _close(self) -> None:
        for link in self._rounds.links.values():
            link.sock.close()
        self._dials.close()
        self._greetings.close()
        for listener in self._listeners.values():
            listener.sock.close()
        self._waker.close()
        self._poller.close()

    async def _serve(self) -> None:
        with self._boundary("a step of the loop"):
            while True:
                self._poller.arm()
                await trio.lowlevel.wait_readable(self._poller.fileno())
                while self._take_turn():
                    await trio.lowlevel.checkpoint()

    def _take_turn(self) -> bool:
        """Take rounds until it is the turn of trio's other tasks; return False if nothing comes for a while."""
        rounds, now = self._rounds, self._node.now
        self._set_clock()
        until_ms = now.ms + TURN_MS
        while True:
            if not rounds.take(MOMENT_S):
                rounds.rest()
                if not rounds.take(LINGER_S):
                    return False
            # While a page is made, the task that makes it is waiting; so are the clock's during long work.
            if self._making or rounds.is_long or now.ms >= until_ms:
                return True

    def _on_ready(self, fd: int, mask: int) -> None:
        self._rounds.on_ready(fd, mask)

    def _on_other(self, fd: int) -> None:
        listener = self._listeners.get(fd)
        if listener is not None:
            self._accept(listener)
        elif fd in self._dials:
            self._dials.on_ready(fd)
        elif fd in self._greetings:
            self._greetings.on_ready(fd)
        elif fd in self._sources:
            try:
                self._sources[fd].on_readable()
            except Exception as error:
                self._node.faults.note(self._sources[fd].work, error)

    def _accept(self, listener: Listener) -> None:
        try:
            sock, address = listener.sock.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Most likely out of descriptors: existing connections must not suffer. The new connection stays in the
            # backlog, so the listener would be ready again at once; it waits for the next tick.
            self._refusals.add(f"cannot accept a connection: {os_error_line(error, None)}", self._node.now.ms)
            self._poller.modify(listener.sock.fileno(), 0)
            return
        self._greetings.add(sock, address[:2], partial(self._begin, listener))

    def _begin(self, listener: Listener, sock: socket.socket, address: Address) -> None:
        name = f"{address[0]}:{address[1]}"
        count = len(self._rounds.links)
        if count >= self._connections_max and not self._make_room(address[0]):
            sock.close()
            self._refusals.add(
                f"{name}: {count} connections are open, and no more are allowed (maxConnections, or the "
                "limit of file descriptors)",
                self._node.now.ms,
            )
            return
        stream: socket.socket | TlsStream | EitherStream = sock
        try:
            certified: Callable[[], frozenset[str]] = frozenset
            if listener.tls is not None and listener.takes_plain:
                stream = EitherStream(sock, listener.tls)
            elif listener.tls is not None:
                stream = accept_tls(sock, listener.tls)
                certified = stream.names
            session = (listener.connect or self._node.connect)(name, certified)
        except OSError as error:
            stream.close()
            log.info("%s: the connection failed: %s", name, error.strerror)
            return
        except Exception as error:
            stream.close()
            self._node.faults.note("accepting a connection", error)
            return
        self._attach(stream, session, self._rounds.account, address[0])

    def _make_room(self, address: str) -> bool:
        found = self._rounds.accepted.choose(address, self._node.now.ms)
        if found is None:
            return False
        self._rounds.close(cast(Link, found[0]), found[1])
        return True

    def dial(self, place: Endpoint, connected: Connected, failed: Callable[[str], None]) -> None:
        """Connect to a peer: later either `connected` makes its session, or `failed` gets the reason."""
        self._dials.begin(place, Dialed(connected, failed))

    def _on_dialed(self, stream: socket.socket | TlsStream, address: str, dialed: Dialed) -> None:
        try:
            session = dialed.connected(address)
        except Exception as failure:
            stream.close()
            self._node.faults.note(f"the connection to {address}", failure)
            dialed.failed("a fault of this broker")
            return
        self._attach(stream, session)

    def _attach(
        self,
        stream: socket.socket | TlsStream | EitherStream,
        session: MadeSession,
        account: Account | None = None,
        address: str = "",
    ) -> None:
        """Attach a session to a connected socket. Only accepted connections have an account and an address."""
        try:
            if isinstance(stream, TlsStream | EitherStream):
                link: Link = TlsLink(stream, session, self._scratch, account, address)
            else:
                link = Link(stream, session, self._scratch, account, address)
        except OSError as error:
            stream.close()
            self._node.disconnect(session, f"the connection failed: {error.strerror}")
            return
        self._rounds.add(link)

    def _set_clock(self) -> None:
        set_clock(self._node.now)

    def _flush(self) -> None:
        self._rounds.flush()
        self._rounds.rest()

    def in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run blocking `work` in a thread, and pass its result to `done` in the loop, if that still runs."""
        if self._nursery is not None:
            self._nursery.start_soon(self._work, work, done, self._workers)

    def look_up(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._work, work, done, self._resolvers)

    def authenticate(self, work: Callable[[], T], done: Callable[[T], None]) -> bool:
        """Run `work` like `in_thread`, for authentication; return False without doing it if too many are waiting."""
        if self._authenticating >= AUTHENTICATIONS_MAX:
            return False
        self._authenticating += 1

        def authenticated(result: T) -> None:
            self._authenticating -= 1
            done(result)

        if self._nursery is not None:
            self._nursery.start_soon(self._work, work, authenticated, self._authenticators)
        return True

    async def _work(self, work: Callable[[], T], done: Callable[[T], None], limiter: trio.CapacityLimiter) -> None:
        with self._boundary("work in a thread"):
            # At the node's end the result is no longer needed.
            result = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
            self._set_clock()
            done(result)
            self._flush()

    def _until_tick_s(self) -> float:
        """Return the time of a tick in seconds, or less if an action is due before."""
        due_ms = self._node.timers.next_ms
        if due_ms is None:
            return TICK_S
        return min(TICK_S, max(TICK_S_MIN, due_ms / 1000 - time.monotonic()))

    async def _tick(self) -> None:
        with self._boundary("the tick of the clock"):
            while True:
                await trio.sleep(self._until_tick_s())
                self._set_clock()
                self._node.tick()
                self._dials.expire()
                self._greetings.expire()
                self._flush()
                for fd in self._listeners:
                    self._poller.modify(fd, READABLE)


def run_server(server: Server, on_ready: Callable[[], None]) -> None:
    """Run the loop of a process, which then closes its files: SIGTERM and SIGINT are ignored from the loop's end on.

    The program that started the process may send a second signal during a slow end. Ending at that would leave files to
    recover.
    """
    early: list[int] = []
    for number in STOPS:
        # Trio's receiver restores these handlers.
        signal.signal(number, lambda caught, frame: early.append(caught))

    def ready() -> None:
        on_ready()
        if early:
            server.stop()

    trio.run(server.run, ready)
