"""The gRPC service: assigns each call to its client and to the part that carries it out.

Every client has its own link to the brokers for the requests of its calls; see `backend`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from broker.common.faults import Faults
from broker.common.standing import Standing
from broker.rocketmq.grpc.access.check import Access
from broker.rocketmq.grpc.access.credentials import read_credential
from broker.rocketmq.grpc.asker import ClientAsker
from broker.rocketmq.grpc.brokers.backend import Backend
from broker.rocketmq.grpc.calling import Asked, Handlers
from broker.rocketmq.grpc.clients import ClientCalls, GrpcClient
from broker.rocketmq.grpc.consuming.lite import LiteCalls, farewell, unsubscription
from broker.rocketmq.grpc.consuming.receiving import Receiving
from broker.rocketmq.grpc.http2.call import Call
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.http2.wire import GrpcError, GrpcStatus
from broker.rocketmq.grpc.probing import Services
from broker.rocketmq.grpc.routing import RouteCalls
from broker.rocketmq.grpc.sending import Sending
from broker.rocketmq.grpc.statuses import CallRejected, status
from broker.rocketmq.grpc.transactions import GrpcTransactions
from broker.rocketmq.remoting.step_time import StepTime
from formats.errors import FormatError
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.describing import Method
from formats.rocketmq.grpc.messages import SERVICE, Message, decode, has_more_fields, make, time_of_ms
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["GrpcService"]

log = logging.getLogger("broker.rocketmq.grpc")

_PREFIX: Final = f"/{SERVICE}/"
_TELEMETRY: Final = "Telemetry"
_RECEIVE: Final = "ReceiveMessage"
_SEND: Final = "SendMessage"
_SUBSCRIBE_LITE: Final = "SyncLiteSubscription"
# The maximum for messages without user data.
_BARE_BYTES_MAX: Final = 1 << 20
# The maximum for a request, with repetitions; repeated ones are counted again when they are read.
_FIELDS_MAX: Final = 1_100
# Clients name all lite topics that they are subscribed to.
_LITE_FIELDS_MAX: Final = 16_384
_EXPIRED_MS: Final = 120_000
_ID_MAX: Final = 255
_FAULT: Final = "a fault of this broker"

# The maxima for the messages of one call, which has one or is a stream of small ones, and of all calls.
_MESSAGES_MAX: Final = 16
_BYTES_MAX: Final = 64 << 20

_ALL_MAX: Final = 50_000
# An address may have many clients, but must leave room for others.
_ADDRESS_MAX: Final = 5_000


class GrpcClients:
    """The clients by address, user and id.

    Ids are not secret: an id alone gives no access to a client of another host or user.
    """

    def __init__(self, all_max: int = _ALL_MAX, address_max: int = _ADDRESS_MAX) -> None:
        self._all_max = all_max
        self._address_max = address_max
        self._clients: dict[tuple[str, str, str], GrpcClient] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[GrpcClient]:
        """Yield a snapshot: clients may be forgotten meanwhile."""
        return iter(list(self._clients.values()))

    def get(self, address: str, client_id: str, user: str = "") -> GrpcClient | None:
        return self._clients.get((address, user, client_id))

    def check_room(self, address: str) -> None:
        """Raise `CallRejected` if there may be no more clients."""
        if len(self._clients) >= self._all_max:
            raise CallRejected(Code.TOO_MANY_REQUESTS, "there are too many clients")
        if self._counts[address] >= self._address_max:
            raise CallRejected(Code.TOO_MANY_REQUESTS, f"there are too many clients of {address}")

    def add(self, client: GrpcClient) -> None:
        address = client.host.address
        self._clients[address, client.user, client.client_id] = client
        self._counts[address] += 1

    def discard(self, client: GrpcClient) -> None:
        address = client.host.address
        if self.get(address, client.client_id, client.user) is not client:
            return
        del self._clients[address, client.user, client.client_id]
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


@dataclass(slots=True, eq=False)
class Held:
    """A waiting call: its messages, and whether it is half closed."""

    messages: list[bytes] = field(default_factory=list)
    is_half_closed: bool = False


class HeldCalls:
    def __init__(self) -> None:
        self._calls: dict[Call, Held] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def begin(self, call: Call) -> None:
        self._calls[call] = Held()

    def keep(self, call: Call, data: bytes) -> bool:
        """Keep a message of a call; return False if it does not wait. Raises `GrpcError` beyond the limits."""
        held = self._calls.get(call)
        if held is None:
            return False
        if len(held.messages) >= _MESSAGES_MAX or self._bytes + len(data) > _BYTES_MAX:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too much input waits for the check of its caller")
        held.messages.append(data)
        self._bytes += len(data)
        return True

    def half_close(self, call: Call) -> bool:
        """Note that a call has no more messages; return False if it does not wait."""
        held = self._calls.get(call)
        if held is not None:
            held.is_half_closed = True
        return held is not None

    def end(self, call: Call) -> Held | None:
        """Remove a call, and return its messages; None if it does not wait."""
        held = self._calls.pop(call, None)
        if held is not None:
            self._bytes -= sum(map(len, held.messages))
        return held


class _Open(NamedTuple):
    name: str
    method: Method
    client: GrpcClient
    messages: list[bytes]


class GrpcService:
    """All clients and their calls; see `session.Service` and `node.Part`.

    Health probes see the port as not serving while `lacks` returns a text.
    """

    def __init__(
        self,
        access: Access,
        backend: Backend,
        faults: Faults,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
        lacks: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._access = access
        self.services = Services(self, lacks)
        self._backend = backend
        self._faults = faults
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._clients = GrpcClients()
        self._sessions: dict[GrpcSession, None] = {}
        self._open: dict[Call, _Open] = {}
        self._rejected: dict[Call, CallRejected] = {}
        self._held = HeldCalls()
        self._transactions = GrpcTransactions()
        receiving = Receiving(wall_ms)
        self._renewals = receiving.renewals
        parts = (
            RouteCalls(),
            Sending(self._transactions),
            receiving,
            self._transactions,
            LiteCalls(),
            ClientCalls(_client_of, self._dismiss),
        )
        self._handlers: Handlers = {name: each for part in parts for name, each in part.handlers.items()}

    def connect(
        self, number: int, host: Host, changed: Callable[[GrpcSession], None], step_time: StepTime | None = None
    ) -> GrpcSession:
        session = GrpcSession(number, host, self.services, changed, self._now_ms, step_time=step_time)
        self._sessions[session] = None
        return session

    # -- calls

    def begin(self, call: Call) -> None:
        """Handle a new call. Raises `GrpcError`."""
        path = call.method
        name = path[len(_PREFIX) :] if path.startswith(_PREFIX) else ""
        if name not in self._handlers:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"Method not found: {path[1:200]}")
        if name != _SEND:
            call.bound_messages(_BARE_BYTES_MAX)
        if self._access.is_on:
            # A refused caller must leave no state.
            self._held.begin(call)
            self._access.authenticate(call.headers, partial(self._authenticated, call, name))
        else:
            self._admit(call, name)

    def _authenticated(self, call: Call, name: str, reason: CallRejected | None) -> None:
        """Continue a call once its caller is known, unless it has ended."""
        held = self._held.end(call)
        if held is None:
            return
        if reason is None:
            self._admit(call, name)
        else:
            self._rejected[call] = reason
        try:
            for data in held.messages:
                self.message(call, data)
            if held.is_half_closed:
                self.half_closed(call)
        except GrpcError as error:
            call.finish(error.status, error.text)
            self.cancelled(call)

    def _admit(self, call: Call, name: str) -> None:
        try:
            client = self._client(call)
        except CallRejected as rejected:
            # The answer to the request gives the reason, as it does for others.
            self._rejected[call] = rejected
            return
        self._open[call] = _Open(name, METHODS[name], client, [])
        if name == _TELEMETRY:
            client.telemetry = call

    def message(self, call: Call, data: bytes) -> None:
        """Handle a message. Raises `GrpcError`."""
        if self._held and self._held.keep(call, data):
            return
        if call in self._rejected and call.method == _PREFIX + _TELEMETRY:
            self._reject(call, _TELEMETRY, self._rejected.pop(call))
        opened = self._open.get(call)
        if opened is None:
            return
        if opened.method.streams_requests:
            self._carry_out(call, opened, data)
        elif opened.messages:
            raise GrpcError(GrpcStatus.INTERNAL, "Too many requests")
        else:
            opened.messages.append(data)
            call.kept_bytes = len(data)

    def half_closed(self, call: Call) -> None:
        """Carry out a call. Raises `GrpcError`."""
        if self._held and self._held.half_close(call):
            return
        if call in self._rejected:
            self._reject(call, call.method[len(_PREFIX) :], self._rejected.pop(call))
        opened = self._open.get(call)
        if opened is None:
            return
        if opened.method.streams_requests:
            call.finish()
            self.cancelled(call)
        elif not opened.messages:
            raise GrpcError(GrpcStatus.INTERNAL, "Half-closed without a request")
        else:
            self._carry_out(call, opened, opened.messages.pop())

    def cancelled(self, call: Call) -> None:
        self._held.end(call)
        self._rejected.pop(call, None)
        opened = self._open.pop(call, None)
        if opened is not None and opened.client.telemetry is call:
            opened.client.telemetry = None

    def disconnected(self, session: GrpcSession) -> None:
        self._sessions.pop(session, None)

    def _carry_out(self, call: Call, opened: _Open, data: bytes) -> None:
        name, method, client = opened.name, opened.method, opened.client
        client.heard_ms = self._now_ms()
        fields_max = _LITE_FIELDS_MAX if name == _SUBSCRIBE_LITE else _FIELDS_MAX
        if has_more_fields(data, fields_max):
            self._failed(call, name, CallRejected(Code.BAD_REQUEST, f"the request has more than {fields_max} fields"))
            return
        try:
            request = decode(method.request, data)
        except FormatError as error:
            raise GrpcError(GrpcStatus.INTERNAL, f"Invalid protobuf byte sequence: {error}") from None
        if not self._access.is_on:
            self._run(call, name, client, request, None)
            return
        run = partial(self._run, call, name, client, request)
        try:
            self._access.authorize(call.headers, client.host.address, name, request, run)
        except Exception as error:
            self._failed(call, name, error)

    def _run(self, call: Call, name: str, client: GrpcClient, request: Message, reason: CallRejected | None) -> None:
        failed = partial(self._failed, call, name)
        if reason is not None:
            failed(reason)
        if reason is not None or call.is_over:
            return
        call.session.standing = Standing.CLIENT
        left_ms = None if call.until_ms is None else call.until_ms - self._now_ms()
        version = call.headers.get("x-mq-client-version", "")
        seal, is_guarded = partial(self._access.seal, call.headers), self._access.is_by_brokers
        is_vouched_for = not is_guarded and self._access.is_on
        asker = ClientAsker(
            client, version, self._backend, seal, failed, is_guarded=is_guarded, is_vouched_for=is_vouched_for
        )
        asked = Asked(request, asker, self._wall_ms(), left_ms, lambda: call.is_over)
        try:
            self._handlers[name](asked, partial(self._answer, call, name))
        except Exception as error:
            failed(error)

    def _answer(self, call: Call, name: str, answer: Message) -> None:
        data = answer.SerializeToString()
        if name == _TELEMETRY or (name == _RECEIVE and answer.WhichOneof("content") != "delivery_timestamp"):
            call.send(data)
            return
        call.answer(data)
        self._open.pop(call, None)

    def _reject(self, call: Call, name: str, rejected: CallRejected) -> None:
        if name == _TELEMETRY:
            inner = rejected.code >= Code.INTERNAL_ERROR
            code = GrpcStatus.INTERNAL if inner else GrpcStatus.INVALID_ARGUMENT
            call.finish(code, f"process client telemetryCommand failed. {rejected.text}")
            self.cancelled(call)
            return
        outcome = status(rejected.code, rejected.text)
        answer = make(METHODS[name].response, status=outcome)
        if name == _RECEIVE:
            call.send(answer.SerializeToString())
            answer = make("ReceiveMessageResponse", delivery_timestamp=time_of_ms(self._wall_ms()))
        call.answer(answer.SerializeToString())
        self._open.pop(call, None)

    def _failed(self, call: Call, name: str, error: Exception) -> None:
        """End a call that failed, with its reason or because of a fault.

        Faults affect the call only: the broker's own end its session with the client, or the process; see `Loopback`.
        """
        if not isinstance(error, CallRejected):
            self._faults.note(f"the call {name}", error)
            error = CallRejected(Code.INTERNAL_SERVER_ERROR, _FAULT)
        self._reject(call, name, error)

    # -- clients

    def _client(self, call: Call) -> GrpcClient:
        """Return the calling client, which is known from now on. Raises `CallRejected`."""
        client_id = call.headers.get("x-mq-client-id", "")
        if not client_id.strip() or len(client_id) > _ID_MAX:
            raise CallRejected(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        host = call.session.host
        credential = read_credential(call.headers) if self._access.is_on else None
        user = "" if credential is None else credential.name
        client = self._clients.get(host.address, client_id, user)
        if client is None or client.link is None or client.link.is_over:
            if client is not None:
                self._leave_client(client)
            self._clients.check_room(host.address)
            client = GrpcClient(client_id, host, call.headers.get("x-mq-language", ""), user)
            client.link = self._backend.connect(host, partial(self._asked, client))
            self._clients.add(client)
        client.heard_ms = self._now_ms()
        return client

    def _dismiss(self, client: GrpcClient) -> None:
        self._leave_client(client, GrpcStatus.OK, "")

    def _leave_client(
        self, client: GrpcClient, outcome: GrpcStatus = GrpcStatus.UNAVAILABLE, text: str = "the client is gone"
    ) -> None:
        self._clients.discard(client)
        link = client.link
        if link is not None:
            farewell(client.client_id, client.settings, self._backend.find_topic, partial(self._tell, client))
            self._renewals.left(client, link.end)
            if link.is_over:
                link.end()
        telemetry, client.telemetry = client.telemetry, None
        if telemetry is not None:
            telemetry.finish(outcome, text)
            self._open.pop(telemetry, None)

    def _asked(self, client: GrpcClient, broker: str, frame: Frame) -> bool:
        """Handle a broker's request to a client; return whether the client can be asked."""
        if frame.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            return self._unsubscribe(client, frame)
        if frame.code != RequestCode.CHECK_TRANSACTION_STATE or client.telemetry is None:
            return False
        settings = client.settings
        topics = () if settings is None else [topic.name for topic in settings.publishing.topics]
        # Groups of remoting producers may have the names of other topics.
        command = self._transactions.orphan(broker, frame, topics, self._wall_ms())
        if command is not None:
            client.telemetry.send(command.SerializeToString())
        return True

    def _unsubscribe(self, client: GrpcClient, frame: Frame) -> bool:
        """Notify a client that it lost its subscription to a lite topic; return whether the frame was about that."""
        command = unsubscription(client.client_id, frame)
        if command is not None and client.telemetry is not None:
            client.telemetry.send(command.SerializeToString())
        return command is not None

    def _tell(self, client: GrpcClient, broker: str, frame: Frame) -> None:
        if client.link is not None:
            client.link.ask(broker, frame, lambda _: None)

    # -- see `node.Part`

    def end_step(self) -> bool:
        """Pass on the brokers' answers; return whether that led to new requests."""
        return self._backend.end_step()

    def tick(self) -> None:
        self.services.health.tick()
        self._backend.tick()
        self._transactions.tick(self._wall_ms())
        self._renewals.tick(self._wall_ms())
        now_ms = self._now_ms()
        for client in self._clients:
            is_silent = client.telemetry is None and now_ms - client.heard_ms > _EXPIRED_MS
            if is_silent or client.link is None or client.link.is_over:
                self._leave_client(client)

    def leave(self) -> None:
        for session in list(self._sessions):
            session.leave()
        self._backend.leave()


def _client_of(asked: Asked) -> GrpcClient:
    asker = asked.client
    assert isinstance(asker, ClientAsker)
    return asker.client
