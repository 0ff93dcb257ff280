"""A broker's registration with its nameservers (source: BrokerController.registerBrokerAll, BrokerOuterAPI).

It registers all its topics at the start and every 30 seconds, since nameservers forget a broker after two minutes, and
changed topics as soon as the change is on the disk.
"""

from __future__ import annotations

import logging
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol

from broker.rocketmq.remoting.broker_calls import Open
from broker.rocketmq.remoting.outgoing import Listener, OtherEnd, Outgoing
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.topics import EVERY, Topics
from formats.rocketmq.remoting.bodies.routes import DataVersion, Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import routing
from formats.rocketmq.remoting.headers.codec import write_header

__all__ = ["PERIOD_MS", "Dial", "NameserverLink", "NameserverRegistry", "Nameservers", "register_frame"]

log = logging.getLogger("broker.rocketmq.registration")

PERIOD_MS: Final = 30_000
# The interval of attempts to dial an unreachable nameserver.
RETRY_MS: Final = 3_000
# Maximum of topics in one request, which bounds the time of a step (source: splitRegistrationSize).
PIECE_TOPICS: Final = 800

_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)


class NameserverRegistry(Protocol):
    """A nameserver, as its broker sees it."""

    is_here: bool
    """True for this process's nameserver."""

    def tell(self, request: Frame, now_ms: int) -> None:
        """Send it a request, or drop it if that is impossible now."""
        ...

    def beat(self, request: Frame, now_ms: int) -> None:
        """Send it a one-way request, or drop it if that is impossible now."""
        ...

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> bool:
        """Send it a request: `done` gets the answer, or None. Return False if it cannot be sent."""
        ...

    def tick(self, now_ms: int) -> None: ...


# Connects to an address; calls one of the two later.
Dial = Callable[[Callable[[str], Session], Callable[[str], None]], None]


def register_frame(
    options: BrokerOptions, topics: Topics, wanted: Iterable[str] | None = None, version: DataVersion | None = None
) -> Frame:
    """Make the request that registers all topics or some, with their version or another."""
    permission = EVERY if options.permission == _READ_WRITE else options.permission | int(Permission.INHERIT)
    text = topics.text(wanted, permission, version)
    body = f'{{"filterServerList":[],"topicConfigSerializeWrapper":{text}}}'.encode()
    header = routing.RegisterBrokerRequest(
        options.name,
        str(options.address),
        options.cluster,
        options.ha_address,
        options.broker_id,
        options.silent_ms,
        enable_acting_master=options.silent_ms is not None,
        body_crc=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return Frame(RequestCode.REGISTER_BROKER, 0, ext_fields=write_header(header), body=body)


class Nameservers:
    """All nameservers of a broker. While it `is_silent`, it sends them nothing.

    Topics are registered in pieces, one per step. Nameservers ignore topics with a known version, so each piece has its
    own; the last one has the table's.
    """

    def __init__(self, options: BrokerOptions, topics: Topics, registries: Iterable[NameserverRegistry]) -> None:
        self._options = options
        self._topics = topics
        self._registries = tuple(registries)
        self._told = topics.version
        self._told_ms: int | None = None
        # Topics still to be registered.
        self._left: deque[str] = deque()
        self.is_silent = False

    def end_step(self, now_ms: int) -> bool:
        """Register some of the changed topics that are on the disk; return True if there are more."""
        version = self._topics.kept.version
        if self.is_silent or (version is self._told and not self._left):
            return False
        is_newer = version != self._told
        if is_newer:
            self._told = version
            self._add(self._topics.take_news())
        if is_newer or self._left:
            self._tell(now_ms)
        return bool(self._left)

    def _add(self, topics: Iterable[str]) -> None:
        self._left = deque(dict.fromkeys((*self._left, *topics)))

    def _tell(self, now_ms: int) -> None:
        piece = [self._left.popleft() for _ in range(min(PIECE_TOPICS, len(self._left)))]
        frame = self._frame(piece, len(self._left))
        for registry in self._registries:
            registry.tell(frame, now_ms)

    def _frame(self, piece: list[str], left: int) -> Frame:
        version = self._topics.version
        return register_frame(self._options, self._topics, piece, version._replace(timestamp=version.timestamp - left))

    def tick(self, now_ms: int) -> None:
        for registry in self._registries:
            registry.tick(now_ms)
        if self._told_ms is None or not 0 <= now_ms - self._told_ms < PERIOD_MS:
            self.register(now_ms)

    def register(self, now_ms: int) -> None:
        """Start to register all topics with all connected nameservers."""
        if self.is_silent:
            return
        self._told, self._told_ms = self._topics.version, now_ms
        self._topics.take_news()
        self._left = deque(self._topics.table)
        self._tell(now_ms)

    def hello(self) -> Frame | None:
        """Return the first request for a new connection, or None. The other topics follow, to all nameservers."""
        if self.is_silent:
            return None
        first, rest = islice(self._topics.table, PIECE_TOPICS), islice(self._topics.table, PIECE_TOPICS, None)
        self._add(rest)
        return self._frame(list(first), len(self._left))

    def beat(self, request: Frame, now_ms: int) -> None:
        if not self.is_silent:
            for registry in self._registries:
                registry.beat(request, now_ms)

    def ask(self, request: Frame, now_ms: int, done: Callable[[list[Frame]], None]) -> None:
        """Ask all nameservers elsewhere, or this process's if there are no others; `done` gets their answers.

        Other brokers do not register with this process's if there are others.
        """
        asked = [each for each in self._registries if not each.is_here] or self._registries
        answers: list[Frame] = []
        missing = len(asked)

        def take(answer: Frame | None) -> None:
            nonlocal missing
            if answer is not None:
                # Its body is a view that is valid only now.
                answers.append(answer._replace(body=bytes(answer.body)))
            missing -= 1
            if not missing:
                done(answers)

        for registry in asked:
            if not registry.ask(request, now_ms, take):
                take(None)

    def leave(self, now_ms: int) -> None:
        if self.is_silent:
            return
        header = routing.UnregisterBrokerRequest(
            self._options.name, str(self._options.address), self._options.cluster, self._options.broker_id
        )
        frame = Frame(RequestCode.UNREGISTER_BROKER, 0, ext_fields=write_header(header))
        for registry in self._registries:
            registry.tell(frame, now_ms)


class NameserverLink:
    """A nameserver elsewhere: its connection, made again when it is lost.

    `hello` returns the first request on a connection, or None; it is repeated while it is refused. `seal` signs
    requests. `registered` receives each answer to a registration, which names a slave's master. With a `secret`, one of
    our nameservers must prove that it knows the secret before it receives requests.
    """

    is_here = False

    def __init__(
        self,
        name: str,
        dial: Dial,
        open_session: Open,
        hello: Callable[[], Frame | None],
        seal: Callable[[Frame], Frame] = lambda frame: frame,
        registered: Callable[[Frame], None] = lambda answer: None,
        secret: bytes | None = None,
    ) -> None:
        self._name = name
        self._hello = hello
        self._registered = registered
        self._refused_ms: int | None = None
        self._is_refused = self._is_registered = False
        self._reason = ""
        self._link = Outgoing(
            lambda _, connected, failed: dial(connected, failed),
            open_session,
            seal,
            OtherEnd("nameserver", log, RETRY_MS, is_lenient=True),
            secret,
            Listener(self._greet, self._answered, self._lost),
        )
        self._link.follow(name)

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> bool:
        """Send a request, if it is connected; `done` gets the answer or None. Return False if it is not."""
        is_connected = self._link.is_connected
        if is_connected:
            self._link.ask(request, now_ms, done)
        return is_connected

    def tell(self, request: Frame, now_ms: int) -> None:
        self._link.tell(request, one_way=False)

    def beat(self, request: Frame, now_ms: int) -> None:
        self._link.tell(request)

    def tick(self, now_ms: int) -> None:
        if self._is_refused:
            self._ask_again(now_ms)
        self._link.tick(now_ms)

    def _greet(self) -> None:
        hello = self._hello()
        if hello is not None:
            self._link.tell(hello, one_way=False)

    def _ask_again(self, now_ms: int) -> None:
        """Register again some time after a refusal, as its reason may be gone."""
        if self._refused_ms is None:
            self._refused_ms = now_ms
        elif not 0 <= now_ms - self._refused_ms < RETRY_MS:
            self._refused_ms, self._is_refused = None, False
            if self._link.is_connected:
                self._greet()

    def _answered(self, frame: Frame) -> None:
        if frame.code != ResponseCode.SUCCESS:
            self._is_registered, self._is_refused = False, True
            reason = frame.remark or f"it answers {frame.code}"
            if reason != self._reason:
                self._reason = reason
                log.warning("nameserver %s refuses: %s", self._name, reason)
            return
        if not self._is_registered:
            self._is_registered = True
            self._reason = ""
            log.info("registered with nameserver %s", self._name)
        self._registered(frame)

    def _lost(self) -> None:
        log.warning("the connection to nameserver %s is lost", self._name)
        self._is_registered = self._is_refused = False
