"""A nameserver for its connections and for the broker of its own process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.common.kept import Keeper
from broker.rocketmq.access.guard import AccessDenied, Guard
from broker.rocketmq.nameserver.admission import NameserverAdmission
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import LeastId
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.routes import QueueData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import NotifyMinBrokerIdChangeRequest

__all__ = ["SCAN_MS", "NameserverService", "is_allowed"]

log = logging.getLogger("broker.rocketmq.nameserver")

SCAN_MS: Final = 5_000
# Maximum size of all registrations that wait for lookups of hosts, and each one's allowance beside its body.
WAITING_BYTES_MAX: Final = 16 << 20
WAITING_BYTES: Final = 4_096


def is_allowed(guard: Guard, frame: Frame, session: Session) -> bool:
    """Return whether a request may be carried out; otherwise answer its sender with the reason."""
    if guard.is_on:
        try:
            guard.check(frame, session.host.address)
        except AccessDenied as denied:
            session.doubt()
            log.info("%s: request %d is denied: %s", session.description, frame.code, denied)
            session.answer(frame, Frame(ResponseCode.NO_PERMISSION, 0, remark=str(denied)))
            return False
    return True


def _stored(session: Session, answer: Frame, error: OSError | None) -> None:
    if error is not None:
        text = f"the change cannot be stored: {error.strerror or error}"
        answer = answer._replace(code=ResponseCode.SYSTEM_ERROR, remark=text, ext_fields=None, body=b"")
    session.send(answer)


class NameserverService:
    """A nameserver; see `remoting.session.Service`, `node.Part` and `administration.registration.NameserverRegistry`.

    `calls` notifies brokers of changes, in requests that `seal` signs. `now_ms` is a clock that never goes back.
    `peers` recognizes the brokers that connect, and `admission` decides which of their requests are accepted.
    """

    is_here = True

    def __init__(
        self,
        nameserver: Nameserver,
        guard: Guard,
        wall_ms: Callable[[], int],
        calls: BrokerCalls | None = None,
        seal: Callable[[Frame], Frame] = lambda frame: frame,
        now_ms: Callable[[], int] = lambda: 0,
        peers: KnownPeers | None = None,
        admission: NameserverAdmission | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._nameserver = nameserver
        self._peers = peers or KnownPeers()
        administrators = Administrators(are_checked=lambda: guard.authenticates)
        self._admission = admission or NameserverAdmission(nameserver.routes, self._peers, administrators)
        nameserver.refuse = self._admission.refuse_takeover
        self._waiting_bytes = 0
        self._calls = calls
        self._seal = seal
        self._now_ms = now_ms
        self._keeper = keeper or Keeper()
        self._keeper.adopt(*nameserver.files)
        nameserver.routes.least_changed = self._tell_least
        self._guard = guard
        self._wall_ms = wall_ms
        self._scanned_ms = wall_ms()
        # Gets each answer to a registration of this process's broker.
        self.registered: Callable[[Frame], None] = lambda answer: None

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        """Answer a request, at once or after a lookup of the broker's host."""
        if frame.is_response or self._peers.take(frame, session):
            return
        if is_allowed(self._guard, frame, session):
            self._receive(frame, session, may_wait=True)

    def _receive(self, frame: Frame, session: Session, *, may_wait: bool) -> None:
        refusal = self._admission.refusal(frame, session)
        if refusal is None:
            answer = self._nameserver.answer(frame, session, self._wall_ms())
            touched = self._keeper.take_touched()
            if answer is not None and touched:
                self._keeper.when_stored(touched, partial(_stored, session, answer))
            elif answer is not None:
                session.send(answer)
            return
        size = len(frame.body) + WAITING_BYTES
        if may_wait and refusal.host is not None and self._waiting_bytes + size <= WAITING_BYTES_MAX:
            # The body is valid only during this call.
            kept = frame._replace(body=bytes(frame.body))
            if self._peers.may_have_moved(refusal.host, lambda: self._go_on(kept, session)):
                self._waiting_bytes += size
                return
        log.info("%s: request %d is refused: %s", session.description, frame.code, refusal.reason)
        session.answer(frame, Frame(ResponseCode.NO_PERMISSION, 0, remark=refusal.reason))

    def _go_on(self, frame: Frame, session: Session) -> None:
        self._waiting_bytes -= len(frame.body) + WAITING_BYTES
        if not session.finished:
            self._receive(frame, session, may_wait=False)

    def disconnected(self, session: Session) -> None:
        self._peers.disconnected(session)
        self._nameserver.routes.disconnected(session)

    def tell(self, request: Frame, now_ms: int) -> None:
        answer = self._nameserver.answer(request, self, now_ms)
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            log.warning("the broker of this process is refused: %s", answer.remark)
        elif answer is not None:
            self.registered(answer)

    def beat(self, request: Frame, now_ms: int) -> None:
        self._nameserver.answer(request, self, now_ms)

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> bool:
        done(self._nameserver.answer(request, self, now_ms))
        return True

    def find_queues(self, topic: str) -> list[QueueData]:
        route = self._nameserver.routes.route(topic)
        return [] if route is None else route.queue_datas

    def end_step(self) -> bool:
        """Write the files that the step has changed; return False, as nothing follows."""
        self._keeper.end_step()
        return False

    def tick(self, now_ms: int | None = None) -> None:
        now_ms = self._wall_ms()
        if not 0 <= now_ms - self._scanned_ms < SCAN_MS:
            self._scanned_ms = now_ms
            for connection in self._nameserver.routes.expire(now_ms):
                if isinstance(connection, Session):
                    # A broker that is still there connects and registers again.
                    connection.give_up("the broker was silent")
        if self._calls is not None:
            self._calls.tick(self._now_ms())

    def _tell_least(self, change: LeastId) -> None:
        """Notify brokers of their least id. Unreachable ones ask by themselves."""
        header = NotifyMinBrokerIdChangeRequest(
            change.broker_id,
            min_broker_addr=change.address,
            offline_broker_addr=change.offline,
            ha_broker_addr=change.ha_address,
        )
        log.info("broker %d at %s has the least id; notifying %s", change.broker_id, change.address, change.tell)
        frame = Frame(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, 0, ext_fields=write_header(header))
        for address in change.tell:
            if self._calls is not None and split_address(address) is not None:
                self._calls.tell(address, self._seal(frame), self._now_ms())

    def leave(self) -> None:
        """Do nothing: brokers and clients see that the connection is closed."""
