"""The remoting clients of a proxy, with connections of their own to brokers.

Source: RemotingProtocolServer, AbstractRemotingActivity. Clients take the proxy for a nameserver that gives the proxy's
address for every broker; the header of a request names its broker.

The original's proxy keeps the groups of its clients itself, and proxies exchange them by messages. Here, a client has
its own connections to the brokers that it uses: they see it connect and disconnect, know its groups, send it requests,
and check its signatures, as if it had connected itself, with any number of proxies. A proxy with access control checks
requests first; unlike the original's, it never lends a client its own key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from broker.rocketmq.access.needs import PLACES
from broker.rocketmq.grpc.access.check import Checked
from broker.rocketmq.grpc.statuses import CallRejected, not_asked
from broker.rocketmq.proxy.access import ProxyAccess
from broker.rocketmq.proxy.brokers import Brokers
from broker.rocketmq.proxy.held_bytes import HeldBytes, size_in_memory
from broker.rocketmq.proxy.nameservers import ProxyNameservers
from broker.rocketmq.proxy.wire import Events, Wire
from broker.rocketmq.remoting.session import Session
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.hosts import Host
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting.bodies.clients import LOCK_REQUEST
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, standard_route
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.versions import STANDARD_JSON_VERSION

__all__ = ["RemotingClients"]

log = logging.getLogger("broker.rocketmq.proxy")

# Clients have their own time-outs; none waits longer.
_WAIT_MS: Final = 30_000
_WAIT_MS_MAX: Final = 120_000
_QUESTIONS_MAX: Final = 1_000
# Maximum size of requests that wait until their sender or their broker is known.
_HELD_BYTES_MAX: Final = 64 << 20
_TICK_MS: Final = 500

# The field of the broker's name in a header, and in one with short names.
_BROKER: Final = "bname"
_SHORT_BROKER: Final = "n"
_SHORT: Final = frozenset(
    (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
)
_ROUTED: Final = _SHORT | frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.PEEK_MESSAGE,
        RequestCode.POLLING_INFO,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    )
)
# Requests for all brokers that the client uses, and requests that any of them can answer.
_TO_ALL: Final = frozenset((RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT))
_TO_ANY: Final = frozenset(
    (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.QUERY_ASSIGNMENT,
    )
)
_LOCKS: Final = frozenset((RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ))
# The header fields with the time that brokers may take to answer.
_WAITS: Final = ("suspendTimeoutMillis", "pollTime")

MakeWire = Callable[[str, Events], Wire]


class RemotingClients:
    """All remoting clients; see `remoting.session.Service` and `node.Part`.

    Clients get `address`, HOST:PORT, as that of each broker; `make_wire` makes a connection to an address.
    """

    def __init__(
        self,
        nameservers: ProxyNameservers,
        brokers: Brokers,
        access: ProxyAccess,
        make_wire: MakeWire,
        address: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._nameservers = nameservers
        self._brokers = brokers
        self._access = access
        self._held = HeldBytes(_HELD_BYTES_MAX)
        self._make_wire = make_wire
        self._address = address
        self._now_ms = now_ms
        self._ticked_ms = now_ms()
        self._clients: dict[Session, _Client] = {}

    # -- see `remoting.session.Service`

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        client = self._clients.get(session)
        if client is None:
            client = self._clients[session] = _Client(session, self._brokers, self._make_wire, self._held, self._now_ms)
        if frame.is_response:
            client.answered(frame)
        elif self._access.is_on:
            self._check(client, frame)
        else:
            self._carry_out(client, frame)

    def _check(self, client: _Client, frame: Frame) -> None:
        client.session.doubt()
        size = size_in_memory(frame)
        if not self._held.take(size):
            client.answer(
                frame, Frame(ResponseCode.SYSTEM_BUSY, 0, remark="too much input waits for the check of its caller")
            )
            return
        # The body is valid during this call only.
        whole = frame._replace(body=bytes(frame.body))

        def checked(reason: CallRejected | None) -> None:
            if reason is None and self._access.must_see(whole):
                self._check_place(client, whole, decided)
            else:
                decided(reason)

        def decided(reason: CallRejected | None) -> None:
            self._held.give_back(size)
            if reason is None:
                client.session.trust()
                self._carry_out(client, whole)
            else:
                is_busy = reason.code == Code.TOO_MANY_REQUESTS
                code = ResponseCode.SYSTEM_BUSY if is_busy else ResponseCode.NO_PERMISSION
                client.answer(whole, Frame(code, 0, remark=reason.text))

        self._access.check(whole, client.host.address, checked)

    def _check_place(self, client: _Client, frame: Frame, checked: Checked) -> None:
        """Check a request that names a record by its log offset, as not all brokers do."""
        fields = frame.ext_fields or {}

        def viewed(answer: Frame) -> None:
            try:
                record = decode_record(answer.body) if answer.code == ResponseCode.SUCCESS else None
            except FormatError:
                record = None
            if isinstance(record, Record):
                self._access.check_record(frame, client.host.address, record, checked)
            elif answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION):
                checked(CallRejected(Code.UNAUTHORIZED, "there is no message at the place that the request names"))
            else:
                checked(
                    CallRejected(Code.TOO_MANY_REQUESTS, "the message that the request names cannot be looked up now")
                )

        view = Frame(RequestCode.VIEW_MESSAGE_BY_ID, 0, ext_fields={"offset": fields.get(PLACES[frame.code], "")})
        self._brokers.ask(self._broker_of(frame) or "", view, self._now_ms() + _WAIT_MS, viewed)

    def _carry_out(self, client: _Client, frame: Frame) -> None:
        code = frame.code
        if code in _ROUTED:
            client.ask_one(self._broker_of(frame), frame)
        elif code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self._find_route(client, frame)
        elif code in _TO_ALL:
            client.ask_all(frame)
        elif code in _TO_ANY:
            client.ask_any(frame)
        elif code in _LOCKS:
            client.ask_one(_broker_of_locks(frame), frame)
        else:
            text = f" request type {code} not supported"
            client.answer(frame, Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, remark=text))

    def disconnected(self, session: Session) -> None:
        client = self._clients.pop(session, None)
        if client is not None:
            client.end()

    def _broker_of(self, frame: Frame) -> str | None:
        """Return the broker of a request; older clients name none, and need not if there is only one."""
        name = (frame.ext_fields or {}).get(_SHORT_BROKER if frame.code in _SHORT else _BROKER)
        if name:
            return name
        names = self._brokers.names
        return names[0] if len(names) == 1 else None

    def _find_route(self, client: _Client, frame: Frame) -> None:
        request = frame.bare
        wants_standard = (frame.ext_fields or {}).get("acceptStandardJsonOnly", "").lower() == "true"
        is_standard = frame.version >= STANDARD_JSON_VERSION or wants_standard

        def found(answer: Frame) -> None:
            if answer.code == ResponseCode.SUCCESS:
                answer = self._own_route(client, answer, is_standard=is_standard)
            client.answer(request, answer)

        self._nameservers.hand_on(frame._replace(body=b""), found)

    def _own_route(self, client: _Client, answer: Frame, *, is_standard: bool) -> Frame:
        try:
            route = TOPIC_ROUTE.read(answer.body)
        except FormatError as error:
            return Frame(ResponseCode.SYSTEM_ERROR, 0, remark=f"the nameserver's route cannot be read: {error}")
        self._brokers.learn(route.broker_datas)
        client.uses(broker.broker_name for broker in route.broker_datas)
        told = [
            each._replace(broker_addrs=dict.fromkeys(each.broker_addrs, self._address)) for each in route.broker_datas
        ]
        route = route._replace(broker_datas=told, filter_server_table={})
        return Frame(ResponseCode.SUCCESS, 0, body=standard_route(route) if is_standard else TOPIC_ROUTE.write(route))

    # -- see `node.Part`

    def end_step(self) -> bool:
        return False

    def tick(self) -> None:
        now_ms = self._now_ms()
        if not 0 <= now_ms - self._ticked_ms < _TICK_MS:
            self._ticked_ms = now_ms
            for client in list(self._clients.values()):
                client.expire()

    def leave(self) -> None:
        """Do nothing: clients see that the connection is closed."""


class _Question(NamedTuple):
    wire: Wire
    request: Frame
    until_ms: int


class _Client:
    def __init__(
        self, session: Session, brokers: Brokers, make_wire: MakeWire, held: HeldBytes, now_ms: Callable[[], int]
    ) -> None:
        self._held = held
        self._session = session
        self._brokers = brokers
        self._make_wire = make_wire
        self._now_ms = now_ms
        self._wires: dict[str, Wire] = {}
        self._uses: set[str] = set()
        # Brokers' requests, by the number that the client got.
        self._questions: dict[int, _Question] = {}
        self._is_ended = False

    @property
    def session(self) -> Session:
        return self._session

    @property
    def host(self) -> Host:
        return self._session.host

    def uses(self, brokers: Iterable[str]) -> None:
        self._uses.update(brokers)

    def answer(self, request: Frame, answer: Frame) -> None:
        """Answer a request; without a broker's answer, with a system error."""
        if not self._is_ended:
            code = answer.code if answer.code >= 0 else ResponseCode.SYSTEM_ERROR
            self._session.answer(request, answer._replace(code=code))

    def ask_one(self, broker: str | None, frame: Frame) -> None:
        request = frame.bare
        if broker is None:
            self.answer(request, Frame(_NO_NAME, 0, remark="Request doesn't have field bname"))
        else:
            self._ask(broker, frame, partial(self.answer, request))

    def ask_any(self, frame: Frame) -> None:
        names = self._names()
        if names:
            self._ask(names[0], frame, partial(self.answer, frame.bare))
        else:
            self.answer(frame, _NOBODY)

    def ask_all(self, frame: Frame) -> None:
        """Pass a request to every broker that the client uses; it succeeds if one accepts it."""
        names, request = self._names(), frame.bare
        left, taken = len(names), False
        if not names:
            self.answer(request, _NOBODY)

        def answered(answer: Frame) -> None:
            nonlocal left, taken
            left -= 1
            if not taken and (answer.code == ResponseCode.SUCCESS or not left):
                taken = True
                self.answer(request, answer)

        for name in names:
            self._ask(name, frame, answered)

    def _names(self) -> list[str]:
        return sorted(self._uses) or self._brokers.names

    def _ask(self, broker: str, frame: Frame, done: Callable[[Frame], None]) -> None:
        until_ms = self._now_ms() + _WAIT_MS + _wait_ms(frame)

        def located(where: str | Frame, whole: Frame) -> None:
            if isinstance(where, Frame):
                if not whole.is_one_way:
                    done(where)
            elif not self._is_ended:
                self._uses.add(broker)
                self._wire(where).ask(whole, until_ms, done)

        address = self._brokers.address_of(broker)
        if address is not None:
            located(address, frame)
            return
        size = size_in_memory(frame)
        if not self._held.take(size):
            text = f"too much waits until it is known where {broker[:80]} is"
            located(not_asked(ResponseCode.SYSTEM_BUSY, text), frame)
            return
        # The body is valid during this call only.
        kept = frame._replace(body=bytes(frame.body))

        def found(where: str | Frame) -> None:
            self._held.give_back(size)
            located(where, kept)

        self._brokers.locate(broker, found)

    def _wire(self, address: str) -> Wire:
        wire = self._wires.get(address)
        if wire is None:
            wire = self._wires[address] = self._make_wire(
                address, Events(lambda: None, lambda: None, lambda frame: self._asked(address, frame))
            )
        return wire

    # -- brokers' requests

    def _asked(self, address: str, frame: Frame) -> bool:
        """Pass on a broker's request; return False if too many are unanswered."""
        if frame.is_one_way:
            self._session.ask(frame, one_way=True)
            return True
        if len(self._questions) >= _QUESTIONS_MAX or self._session.finished:
            return False
        number = self._session.ask(frame)
        until_ms = self._now_ms() + _WAIT_MS
        self._questions[number] = _Question(self._wires[address], frame.bare, until_ms)
        return True

    def answered(self, frame: Frame) -> None:
        question = self._questions.pop(frame.opaque, None)
        if question is not None:
            question.wire.answer(question.request, frame)

    # -- the end

    def expire(self) -> None:
        now_ms = self._now_ms()
        for wire in self._wires.values():
            wire.expire(now_ms)
        self._wires = {address: wire for address, wire in self._wires.items() if not wire.is_idle or wire.waiting}
        for number in [number for number, each in self._questions.items() if each.until_ms <= now_ms]:
            del self._questions[number]

    def end(self) -> None:
        self._is_ended = True
        for wire in self._wires.values():
            wire.leave("its client is gone")


_NO_NAME: Final = ResponseCode.VERSION_NOT_SUPPORTED
_NOBODY: Final = Frame(ResponseCode.SYSTEM_ERROR, 0, remark="no broker is known")


def _broker_of_locks(frame: Frame) -> str | None:
    try:
        queues = LOCK_REQUEST.read(frame.body).mq_set
    except FormatError:
        return None
    return queues[0].broker_name if queues else None


def _wait_ms(frame: Frame) -> int:
    fields = frame.ext_fields or {}
    return min(_WAIT_MS_MAX, max(read_digits(fields.get(name)) or 0 for name in _WAITS))
