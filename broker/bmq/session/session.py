# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""One link: its negotiation, its events, and its end.

Source: mqba::ClientSession, mqba::SessionNegotiator, mqbblp::QueueSessionManager, also of the texts of failures, which
clients and their logs show. Its states are a table: `broker.bmq.session.session_table`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker.bmq.core.config import NodeIdentity
from broker.bmq.core.messages import Buffer
from broker.bmq.core.pretty import Shown
from broker.bmq.core.received import received
from broker.bmq.queue.queue_requests import QueueHost
from broker.bmq.session.authentication import Authentications
from broker.bmq.session.authorization import Authorizations, Rights
from broker.bmq.session.client import Client
from broker.bmq.session.entrance import Entrance, uncertified
from broker.bmq.session.heartbeats import Heartbeats
from broker.bmq.session.negotiation import SCHEMA_FEATURE, answer_identity, knows_heartbeats, refuse_connection
from broker.bmq.session.outbox import Outbox
from broker.bmq.session.posting import take_confirms, take_posts
from broker.bmq.session.session_ports import BrokerPeer
from broker.bmq.session.session_table import TRANSITIONS, SessionState, SessionTrigger
from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.standing import Standing
from formats.bmq.control import codec
from formats.bmq.control.messages import (
    AdminCommand,
    AdminCommandResponse,
    ClientIdentity,
    ClientType,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    NegotiationMessage,
)
from formats.bmq.wire.event import (
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    EncodingType,
    EventType,
    Frame,
    build_schema_event,
    next_frame,
    schema_encoding,
)
from formats.errors import FormatError

__all__ = ["Session", "SessionHost"]

log: Final = logging.getLogger("broker.session")


EVENT_TYPES: Final = len(EventType)

NOT_AUTHORIZED: Final = "Not authorized to execute this command"

# Maximum size of an event before negotiation.
NEGOTIATION_BYTES_MAX: Final = 64 << 10
# bmqp::EventHeader::k_MAX_SIZE_SOFT
EVENT_BYTES_MAX: Final = 512 << 20
# Maximum size of a client's requests, which are short: a subscription takes a few hundred bytes.
CONTROL_BYTES_MAX: Final = 1 << 20

NEGOTIATION_TIMEOUT_MS: Final = 60_000

# A client with this much unsent output is not read from until it has taken some.
CLIENT_BACKLOG_BYTES_MAX: Final = 4 << 20
# A broker is always read from: two might wait for each other.
READ_ALWAYS: Final = 1 << 62

# Plain integers for the hot paths: arithmetic on enumerations costs more than the message.
_PUT: Final = int(EventType.PUT)
_CONFIRM: Final = int(EventType.CONFIRM)
# Consecutive events of these kinds are a run.
_RUN_KINDS: Final = (_PUT, _CONFIRM)


class SessionHost(QueueHost, Protocol):
    """The node of a session."""

    @property
    def identity(self) -> NodeIdentity: ...

    @property
    def now(self) -> Now: ...

    @property
    def dirty(self) -> set[Session]: ...

    @property
    def next_guid(self) -> Callable[[], bytes]: ...

    @property
    def authentications(self) -> Authentications: ...

    @property
    def authorizations(self) -> Authorizations: ...

    @property
    def faults(self) -> Faults: ...

    def may_log(self, session: Session) -> bool: ...

    def admit(self, session: Session, identity: ClientIdentity) -> BrokerPeer | str | None:
        """Decide about another broker: return the purpose of its session, or the reason of a refusal.

        None while that is being determined: the session's entrance will be resumed.
        """
        ...

    @property
    def run_command(self) -> Callable[[str, str, Callable[[str], bool]], tuple[int, str]]:
        """Executes an admin command, given its line, its source, and a check of the queues that it may read.

        Returns a status, and the answer.
        """
        ...


class Session:
    """The machine of one link; see `link.Machine`. A client on it has its queues as `client`."""

    # Slots: a dictionary of this many attributes is slower.
    __slots__ = (
        "_broker",
        "_control_bytes_max",
        "_heartbeats",
        "_in_flight",
        "_is_admin",
        "_next_guid",
        "_now",
        "_on_event",
        "_rights",
        "_takes_runs",
        "backlog_bytes_max",
        "bytes_in",
        "bytes_out",
        "client",
        "entrance",
        "event_bytes_max",
        "finished",
        "handles",
        "host",
        "out",
        "paused",
        "session_id",
        "standing",
        "state",
    )

    keeps_more = False

    def __init__(
        self, host: SessionHost, session_id: int, peer: str, certified: Callable[[], frozenset[str]] = uncertified
    ) -> None:
        self.host = host
        self.session_id = session_id
        self.paused = False  # it takes no input while the peer is being authenticated
        self.entrance = Entrance(host, self, peer, certified)
        self._rights = Rights(host, self.entrance)
        self.out = Outbox()
        wake, may_log = partial(host.dirty.add, self), partial(host.may_log, self)
        self.client = Client(host, peer, self.out, wake, self.fail, self._rights.check_open, may_log)
        self.handles = self.client.handles
        self._is_admin = False
        self._broker: BrokerPeer | None = None
        self._in_flight = 0
        self._next_guid: Callable[[], bytes] | None = None  # of a client that makes none
        self.bytes_in = self.bytes_out = 0
        self._now = host.now
        self._heartbeats = Heartbeats(host.now.ms)
        self._enter(SessionState.NEGOTIATING)

    @property
    def description(self) -> str:
        return self.client.description

    # -- the link's side

    def receive(self, data: memoryview) -> int:
        """Handle the whole events at the front of `data`; return the number of bytes that they took.

        Malformed bytes end the session: the stream cannot be trusted after them.
        """
        heartbeats = self._heartbeats
        heartbeats.heard_at_ms = self._now.ms
        heartbeats.missed = 0
        at, available = 0, len(data)
        has_confirmed = True
        try:
            while at < available and not self.paused:
                frame = next_frame(data, at, available, self.event_bytes_max, self._control_bytes_max)
                if frame is None:
                    break
                kind = frame.type
                if kind != _CONFIRM:
                    has_confirmed = False
                if self._takes_runs and kind in _RUN_KINDS:
                    at = self._on_run(data, frame, available)
                else:
                    self._on_event[kind](data, frame)
                    at = frame.end
        except FormatError as error:
            self.end(f"sent bytes that are not a valid event: {error}")
            return available
        self.client.has_confirmed = has_confirmed and at > 0
        self.bytes_in += at
        broker = self._broker
        if broker is not None and self.backlog > broker.backlog_bytes_max:
            self._judge_backlog(broker)
        return at

    @property
    def input_can_wait(self) -> bool:
        """True after confirms of a client that only consumes, and may be sent many more."""
        return self.client.can_wait and self.is_client

    def _on_run(self, data: memoryview, first: Frame, available: int) -> int:
        """Handle posts or confirms, and all such events that follow at once; return the end of the last."""
        kind, at = first.type, first.end
        frames = [first]
        try:
            while at < available:
                frame = next_frame(data, at, available, self.event_bytes_max, self._control_bytes_max)
                if frame is None or frame.type != kind:
                    break
                frames.append(frame)
                at = frame.end
        except FormatError:
            # Earlier input is valid; `receive` comes to this next.
            pass
        if kind == _CONFIRM:
            take_confirms(self.client, self.handles, data, frames)
        else:
            take_posts(self.client, self.session_id, self.handles, data, frames, self._next_guid)
        return at

    def _judge_backlog(self, broker: BrokerPeer) -> None:
        if self.backlog > broker.backlog_bytes_max and not self.finished:
            text = f"does not read what it is sent: {self.backlog} bytes wait, the limit is {broker.backlog_bytes_max}"
            log.error("#TCP_BACKLOG %s: %s", self.description, text)
            self.end(text)
            self.out.clear()

    def _enter(self, state: SessionState) -> None:
        self.state = state
        self.finished = state is SessionState.CLOSED
        self._takes_runs = self.is_client
        self.backlog_bytes_max = CLIENT_BACKLOG_BYTES_MAX if self._broker is None else READ_ALWAYS
        self.standing = self._standing(state)
        if state is SessionState.NEGOTIATING:
            self._on_event = [self.entrance.on_event] * EVENT_TYPES
            self.event_bytes_max = self._control_bytes_max = NEGOTIATION_BYTES_MAX
            return
        self.event_bytes_max = EVENT_BYTES_MAX
        self._control_bytes_max = CONTROL_BYTES_MAX if self._broker is None else self._broker.control_bytes_max
        if state is SessionState.RUNNING and self._broker is not None:
            self._on_event = [self._broker.receive] * EVENT_TYPES
            self._on_event[EventType.AUTHENTICATION] = self.entrance.on_authentication
            self._on_event[EventType.HEARTBEAT_REQ] = self._on_heartbeat_request
            self._on_event[EventType.HEARTBEAT_RSP] = self._on_heartbeat_response
        elif state is SessionState.RUNNING and self._is_admin:
            self._on_event = [self._on_foreign] * EVENT_TYPES
            self._on_event[EventType.AUTHENTICATION] = self.entrance.on_authentication
            self._on_event[EventType.CONTROL] = self._on_admin_control
            self._on_event[EventType.HEARTBEAT_REQ] = self._on_heartbeat_request
            self._on_event[EventType.HEARTBEAT_RSP] = self._on_heartbeat_response
        elif state is SessionState.RUNNING:
            self._on_event = [self._on_foreign] * EVENT_TYPES
            self._on_event[EventType.AUTHENTICATION] = self.entrance.on_authentication
            self._on_event[EventType.CONTROL] = self._on_control
            self._on_event[EventType.HEARTBEAT_REQ] = self._on_heartbeat_request
            self._on_event[EventType.HEARTBEAT_RSP] = self._on_heartbeat_response
            self._on_event[EventType.REJECT] = self._on_reject
        else:
            # It has disconnected or violated the protocol: later input is ignored.
            self._on_event = [self._on_nothing] * EVENT_TYPES

    def _standing(self, state: SessionState) -> Standing:
        if state is SessionState.NEGOTIATING:
            return Standing.STRANGER
        return Standing.CLIENT if self._broker is None else self._broker.standing

    def _on_foreign(self, data: memoryview, frame: Frame) -> None:
        raise FormatError(
            "EventHeader.type", frame.body, f"unexpected {EventType(frame.type).name} event from a client"
        )

    def _on_nothing(self, data: memoryview, frame: Frame) -> None:
        """Ignore an event that is not handled in this state."""

    def take_output(self) -> bytearray:
        data = self.out.take()
        self._in_flight = len(data)
        self.bytes_out += len(data)
        return data

    def output_size(self) -> int:
        out = self.out
        return len(out.data) + len(out.beside)

    def memory_size(self) -> int:
        out = self.out
        return len(out.data) + len(out.beside)

    @property
    def backlog(self) -> int:
        """Upper bound of the unsent bytes: the link reports only when everything passed to it is sent."""
        out = self.out
        return len(out.data) + len(out.beside) + self._in_flight

    def output_sent(self) -> None:
        self._in_flight = 0
        if self._broker is not None:
            self._broker.output_sent()
        self.client.output_sent()

    def hold(self) -> None:
        self.client.hold()
        if self._broker is not None:
            self._broker.hold()

    def end(self, reason: str, *, lost: bool = True) -> None:
        """Close the session; its consumers' messages go to others, with one attempt less if it is `lost`."""
        if self.state is not SessionState.CLOSED:
            log.info("%s: session ends: %s", self.description, reason)
        self._enter(TRANSITIONS[self.state, SessionTrigger.ENDED])
        self.client.requests.drop(lost=lost)
        if self._broker is not None:
            broker, self._broker = self._broker, None
            broker.ended()
        self.host.dirty.add(self)

    def fail(self, error: Exception) -> None:
        """Note that this session's work failed: it sends no more, and ends after the step."""
        self.client.block()
        self.host.faults.end_session(self, error)

    def give_up(self, reason: str) -> None:
        self.end(reason)
        self.out.clear()

    def tick(self) -> None:
        """Check a silent peer; called once a second."""
        now = self.host.now.ms
        if self.state is SessionState.NEGOTIATING:
            if now - self._heartbeats.since_ms > NEGOTIATION_TIMEOUT_MS:
                self.end("negotiation timed out")
            return
        if self.entrance.has_expired:
            self.end("re-authentication timed out")
            return
        if self._broker is not None:
            self._judge_backlog(self._broker)
            if self.finished:
                return
        heartbeats, missed_max = self._heartbeats, self._heartbeats_missed_max
        if not heartbeats.miss(now, self.host.identity.heartbeat_interval_ms, missed_max):
            return
        if heartbeats.missed > missed_max:
            log.warning(
                "#TCP_DEAD_CHANNEL: closing unresponsive channel after %d missed heartbeats [session: '%s']",
                missed_max,
                self.description,
            )
            self.end(f"no answer to {missed_max} heartbeats")
            return
        self.send_event(HEARTBEAT_REQUEST)

    @property
    def _heartbeats_missed_max(self) -> int:
        """Number of heartbeats in a row that the peer may leave unanswered; 0 if none are sent."""
        if self._broker is not None:
            return self._broker.heartbeats_missed_max
        return self.host.identity.heartbeats_missed_max if self._heartbeats.are_known else 0

    # -- negotiation

    @property
    def is_client(self) -> bool:
        """True for a client whose session has begun: neither a broker nor an administrator."""
        return self.state is SessionState.RUNNING and self._broker is None and not self._is_admin

    def identify(self, identity: ClientIdentity, encoding: EncodingType) -> None:
        """Process the identity of an authenticated peer: begin the session or refuse it."""
        self.client.encoding = encoding
        self.client.description = f"{identity.process_name}:{identity.pid}@{self.entrance.peer}"
        if not self._rights.may_connect(identity):
            self._negotiate(refuse_connection(self.host.identity))
            principal = self.entrance.auth.principal
            self.end(f"'{principal}' is not authorized to connect as {identity.client_type.name}")
            return
        refusal = None
        broker: BrokerPeer | None = None
        if identity.client_type is ClientType.TCPBROKER:
            admitted = self.host.admit(self, identity)
            if admitted is None:
                return
            if isinstance(admitted, str):
                refusal = admitted
            else:
                broker = admitted
        elif identity.client_type not in (ClientType.TCPCLIENT, ClientType.TCPADMIN):
            refusal = f"{identity.client_type.name} connections are not supported"
        answer = answer_identity(self.host.identity, self.session_id, refusal, identity)
        self._negotiate(answer)
        if refusal:
            self.end(refusal)
            return
        self._broker = broker
        self._is_admin = identity.client_type is ClientType.TCPADMIN
        self._heartbeats.are_known = knows_heartbeats(identity)
        self._next_guid = None if identity.guid_info.client_id else self.host.next_guid
        self.client.knows_schemas = SCHEMA_FEATURE in identity.features
        self._enter(TRANSITIONS[self.state, SessionTrigger.IDENTIFIED])
        log.info(
            "%s: session starts (sdk %d, user agent '%s')", self.description, identity.sdk_version, identity.user_agent
        )
        if broker is not None:
            broker.begun()

    def _on_reject(self, data: memoryview, frame: Frame) -> None:
        self.log_improper("REJECT, which only brokers send")

    def log_improper(self, what: str) -> None:
        self.client.log_improper(what)

    # -- requests

    def _on_control(self, data: memoryview, frame: Frame) -> None:
        message = received(ControlMessage, data[frame.body : frame.end], schema_encoding(frame.type_specific))
        log.info("%s: received %s", self.description, Shown(message, frame.end - frame.body))
        match message.choice:
            case Disconnect():
                self.client.requests.drop()
                self.client.reply(message, DisconnectResponse())
                self._enter(TRANSITIONS[self.state, SessionTrigger.DISCONNECT])
            case choice if not self.client.requests.serve(message):
                self.log_improper(f"an unexpected {type(choice).__name__}")

    def _on_admin_control(self, data: memoryview, frame: Frame) -> None:
        """Execute an administrator's command; its encoding may change with each one."""
        message = received(ControlMessage, data[frame.body : frame.end], schema_encoding(frame.type_specific))
        match message.choice:
            case AdminCommand(command=command):
                if not self._rights.may_execute(command):
                    log.warning("%s: refused a command: not authorized", self.description)
                    self.client.reply(message, AdminCommandResponse(text=NOT_AUTHORIZED))
                    return
                status, text = self.host.run_command(command, self.description, self._rights.may_read)
                log.info("%s: Send response message of %d characters, status %d", self.description, len(text), status)
                self.client.reply(message, AdminCommandResponse(text=text))
            case Disconnect():
                self.client.reply(message, DisconnectResponse())
                self._enter(TRANSITIONS[self.state, SessionTrigger.DISCONNECT])
            case _:
                self.log_improper(f"an unexpected {type(message.choice).__name__}")

    def _negotiate(self, message: NegotiationMessage) -> None:
        encoding = self.client.encoding
        self.send_event(build_schema_event(codec.encode(message, encoding), EventType.CONTROL, encoding))

    def send_event(self, event: Buffer | bytearray) -> None:
        self.out.whole(event)
        self.host.dirty.add(self)

    # -- heartbeats

    def _on_heartbeat_request(self, data: memoryview, frame: Frame) -> None:
        self._heartbeats.are_known = True
        self.send_event(HEARTBEAT_RESPONSE)

    def _on_heartbeat_response(self, data: memoryview, frame: Frame) -> None:
        self._heartbeats.are_known = True  # `receive` has noted the time
