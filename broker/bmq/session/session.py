# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A client's session: negotiation, requests, posts, confirms, and pushes.

Source: mqba::ClientSession, mqba::SessionNegotiator, mqbblp::QueueSessionManager; the texts of failures are theirs,
because clients and their logs show them. Its states are a table: `broker.bmq.session.session_table`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.bmq.core.config import NodeIdentity
from broker.bmq.core.messages import Buffer, Message
from broker.bmq.core.pretty import Shown
from broker.bmq.core.received import received
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import QueueHost, QueueRequests
from broker.bmq.session.authentication import Authentications
from broker.bmq.session.authorization import Authorizations, Rights
from broker.bmq.session.entrance import Entrance, uncertified
from broker.bmq.session.negotiation import SCHEMA_FEATURE, answer_identity, knows_heartbeats, refuse_connection
from broker.bmq.session.outbox import EVENT_BYTES_SOFT, Outbox
from broker.bmq.session.posting import RUN_BYTES_MAX, take_confirms, take_posts
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
from formats.bmq.wire.ack import ACK_HEADER_BYTES, AckStatus, pack_ack, pack_acks
from formats.bmq.wire.application_data import to_older_application_data
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
from formats.bmq.wire.push import PushFlag, append_push, push_frame
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

# A client with more handles than this is read at once: it would take long to look at them.
WAITING_HANDLES_MAX: Final = 16

# A consumer with this much unsent output gets no more until it has taken it.
PUSH_BYTES_HIGH: Final = 4 << 20


# Plain integers for the hot paths: arithmetic on enumerations costs more than the message.
_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_ACK: Final = EventType.ACK
_PUSH: Final = EventType.PUSH
_PUT: Final = int(EventType.PUT)
_CONFIRM: Final = int(EventType.CONFIRM)
# The kinds of events of which several in a row are a run.
_RUN_KINDS: Final = (_PUT, _CONFIRM)


class SessionHost(QueueHost, Protocol):
    """The node's interface for a session."""

    @property
    def identity(self) -> NodeIdentity: ...

    @property
    def now(self) -> Now: ...

    @property
    def dirty(self) -> set[Session]: ...

    @property
    def next_guid(self) -> Callable[[], bytes]:
        """Makes GUIDs for clients that make none."""
        ...

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
        """Executes an admin command, given its line, its source, and which queues that may read.

        Returns a status, and the answer.
        """
        ...


class Session:
    """The machine of one link; see `link.Machine`, and `queue.Sink` for its consumer side."""

    # Slots: access to this many attributes is slower with a dictionary.
    __slots__ = (
        "_broker",
        "_control_bytes_max",
        "_encoding",
        "_generates_guids",
        "_has_confirmed",
        "_heard_at_ms",
        "_heartbeats_missed",
        "_held",
        "_in_flight",
        "_is_admin",
        "_knows_heartbeats",
        "_knows_schemas",
        "_now",
        "_on_event",
        "_requests",
        "_rights",
        "_since_ms",
        "_takes_runs",
        "backlog_bytes_max",
        "bytes_in",
        "bytes_out",
        "description",
        "entrance",
        "event_bytes_max",
        "finished",
        "handles",
        "has_room",
        "host",
        "out",
        "paused",
        "ready",
        "session_id",
        "standing",
        "state",
    )

    takes_all = False
    keeps_more = False

    def __init__(
        self, host: SessionHost, session_id: int, peer: str, certified: Callable[[], frozenset[str]] = uncertified
    ) -> None:
        self.host = host
        self.session_id = session_id
        self.description = peer
        self.paused = False  # it takes no input while the peer is being authenticated
        self._has_confirmed = False  # all of the last input was confirms
        self.entrance = Entrance(host, self, peer, certified)
        self.ready = self.has_room = True
        self._rights = Rights(host, self.entrance)
        self._requests = QueueRequests(host, self, self._rights.check_open)
        self.handles = self._requests.handles
        self.out = Outbox()
        self._is_admin = False
        self._broker: BrokerPeer | None = None
        self._in_flight = 0
        self._held = False
        self._generates_guids = False
        self._knows_schemas = False  # reads the newer encoding of message properties
        self._encoding = EncodingType.BER
        self.bytes_in = self.bytes_out = 0
        self._now = host.now
        self._heard_at_ms = self._since_ms = host.now.ms
        self._heartbeats_missed = 0
        self._knows_heartbeats = False
        self._enter(SessionState.NEGOTIATING)

    # -- the link's side

    def receive(self, data: memoryview) -> int:
        """Handle the whole events at the front of `data`; return the number of bytes they took.

        Malformed bytes end the session: the stream cannot be trusted after them.
        """
        self._heard_at_ms = self._now.ms
        self._heartbeats_missed = 0
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
        self._has_confirmed = has_confirmed and at > 0
        self.bytes_in += at
        broker = self._broker
        if broker is not None and self.backlog > broker.backlog_bytes_max:
            self._judge_backlog(broker)
        return at

    @property
    def input_can_wait(self) -> bool:
        """See `link.Machine`: True after confirms of a client that only consumes, and may be sent many more."""
        handles = self.handles
        return (
            self._has_confirmed
            and self.is_client
            and 0 < len(handles) <= WAITING_HANDLES_MAX
            and all(handle.has_slack for handle in handles.values())
        )

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
            take_confirms(self, self.handles, data, frames)
        else:
            next_guid = None if self._generates_guids else self.host.next_guid
            take_posts(self, self.session_id, self.handles, data, frames, next_guid)
        return at

    def _judge_backlog(self, broker: BrokerPeer) -> None:
        """End the session with a broker whose output has grown too large."""
        if self.backlog > broker.backlog_bytes_max and not self.finished:
            text = f"does not read what it is sent: {self.backlog} bytes wait, the limit is {broker.backlog_bytes_max}"
            log.error("#TCP_BACKLOG %s: %s", self.description, text)
            self.end(text)
            self.out.clear()

    def _enter(self, state: SessionState) -> None:
        """Enter a state, with its event handlers and maximum size of events."""
        self.state = state
        self.finished = state is SessionState.CLOSED
        self._takes_runs = self.is_client
        # With more than this waiting, its peer is not read from; a broker always: two might wait for each other.
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
        self.has_room = True
        if self._broker is not None:
            self._broker.output_sent()
        if not (self.ready or self._held):
            self.ready = True
            for handle in self.handles.values():
                handle.resume()

    def hold(self) -> None:
        """Stop pushing messages that are to be confirmed, since this node is about to stop."""
        self._held = True
        self.ready = False
        if self._broker is not None:
            self._broker.hold()

    def end(self, reason: str, *, lost: bool = True) -> None:
        """Close the session; its consumers' messages go to others, with one attempt less if it is `lost`."""
        if self.state is not SessionState.CLOSED:
            log.info("%s: session ends: %s", self.description, reason)
        self._enter(TRANSITIONS[self.state, SessionTrigger.ENDED])
        self._requests.drop(lost=lost)
        if self._broker is not None:
            broker, self._broker = self._broker, None
            broker.ended()
        self.host.dirty.add(self)

    def fail(self, error: Exception) -> None:
        """Note that this session's work failed: it sends no more, and ends after the step."""
        self.ready = self.has_room = False
        self.host.faults.end_session(self, error)

    def give_up(self, reason: str) -> None:
        """See `broker.common.faults.Failing`."""
        self.end(reason)
        self.out.clear()

    def tick(self) -> None:
        """Check a silent peer; called once a second."""
        now = self.host.now.ms
        if self.state is SessionState.NEGOTIATING:
            if now - self._since_ms > NEGOTIATION_TIMEOUT_MS:
                self.end("negotiation timed out")
            return
        if self.entrance.has_expired:
            self.end("re-authentication timed out")
            return
        if self._broker is not None:
            self._judge_backlog(self._broker)
            if self.finished:
                return
        missed_max = self._heartbeats_missed_max
        interval = self.host.identity.heartbeat_interval_ms
        if missed_max <= 0 or interval <= 0 or now - self._heard_at_ms < interval * (self._heartbeats_missed + 1):
            return
        self._heartbeats_missed += 1
        if self._heartbeats_missed > missed_max:
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
        return self.host.identity.heartbeats_missed_max if self._knows_heartbeats else 0

    # -- negotiation

    @property
    def is_client(self) -> bool:
        """True for a client whose session has begun: neither a broker nor an administrator."""
        return self.state is SessionState.RUNNING and self._broker is None and not self._is_admin

    def identify(self, identity: ClientIdentity, encoding: EncodingType) -> None:
        """Process the identity of an authenticated peer: begin the session or refuse it."""
        self._encoding = encoding
        self.description = f"{identity.process_name}:{identity.pid}@{self.entrance.peer}"
        if not self._rights.may_connect(identity):
            self.send_event(self._encode(refuse_connection(self.host.identity)))
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
        self.send_event(self._encode(answer))
        if refusal:
            self.end(refusal)
            return
        self._broker = broker
        self._is_admin = identity.client_type is ClientType.TCPADMIN
        self._knows_heartbeats = knows_heartbeats(identity)
        self._generates_guids = bool(identity.guid_info.client_id)
        self._knows_schemas = SCHEMA_FEATURE in identity.features
        self._enter(TRANSITIONS[self.state, SessionTrigger.IDENTIFIED])
        log.info(
            "%s: session starts (sdk %d, user agent '%s')", self.description, identity.sdk_version, identity.user_agent
        )
        if broker is not None:
            broker.begun()

    # -- posts and confirms

    def acknowledge(self, queue_id: int, correlation_id: int, guid: bytes, status: int) -> None:
        """See `broker.bmq.core.messages.Poster`."""
        if queue_id in self.handles:
            out = self.out.event(_ACK, ACK_HEADER_BYTES)
            out += pack_ack(status, correlation_id, guid, queue_id)
            self.host.dirty.add(self)

    def acknowledge_kept(self, queue_id: int, correlation_id: int, guids: Sequence[bytes]) -> None:
        """See `broker.bmq.core.messages.Poster`."""
        if queue_id in self.handles:
            out = self.out.event(_ACK, ACK_HEADER_BYTES)
            out += pack_acks(0, correlation_id, guids, queue_id)
            self.host.dirty.add(self)

    def note_duplicate(self, queue: Queue, guid: bytes) -> None:
        if self.host.may_log(self):
            text = "Duplicate PUT message queue [%s] from client [%s], GUID [%s]"
            log.warning(text, queue.uri, self.description, guid.hex().upper())

    def refuse(self, status: AckStatus, correlation_id: int, guid: bytes, queue_id: int, reason: str) -> None:
        """Refuse a message; the reason is logged at most once a second for each session."""
        handle = self.handles.get(queue_id)
        if handle is not None:
            handle.queue.statistics.nacks += 1
        if self.host.may_log(self):
            name = handle.queue.uri if handle else "unknown queue"
            log.warning(
                "%s: failed Ack [status: %s, GUID: %s, queue: '%s' (id: %d)]: %s",
                self.description,
                status.name,
                guid.hex().upper(),
                name,
                queue_id,
                reason,
            )
        out = self.out.event(_ACK, ACK_HEADER_BYTES)
        out += pack_ack(status, correlation_id, guid, queue_id)
        self.host.dirty.add(self)

    def _on_reject(self, data: memoryview, frame: Frame) -> None:
        self.log_improper("REJECT, which only brokers send")

    def log_improper(self, what: str) -> None:
        if self.host.may_log(self):
            log.warning("#CLIENT_IMPROPER_BEHAVIOR %s: received %s", self.description, what)

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None:
        compression = message.compression
        if schema_id and not self._knows_schemas:
            try:
                data = to_older_application_data(memoryview(data), compression)
            except FormatError as error:
                guid = message.guid.hex().upper()
                log.error("#CLIENT_INVALID_PUSH %s: %s cannot be converted: %s", self.description, guid, error)
                return
            compression = schema_id = 0
        out = self.out.event(_PUSH)
        append_push(
            out,
            queue_id,
            message.guid,
            data,
            subscription_id,
            _PUSH_PROPERTIES if message.has_properties else 0,
            compression,
            schema_id,
        )
        if len(out) > PUSH_BYTES_HIGH:
            self.ready = self.has_room = False
        self.host.dirty.add(self)

    def takes_run(self, size: int) -> bool:
        """See `broker.bmq.core.messages.Sink`; the messages do not begin another event."""
        return self.ready and size <= RUN_BYTES_MAX and self.output_size() + 2 * RUN_BYTES_MAX < EVENT_BYTES_SOFT

    def push_run(
        self, queue_id: int, messages: Sequence[Message], payloads: Sequence[Buffer], subscription_id: int
    ) -> None:
        out = self.out.event(_PUSH)
        pieces: list[Buffer] = []
        before = after = padding = b""
        size, compression, has_properties = -1, 0, False
        for message, payload in zip(messages, payloads, strict=True):
            # Messages in a row differ in little more than their GUIDs.
            if len(payload) != size or message.compression != compression or message.has_properties != has_properties:
                size, compression, has_properties = len(payload), message.compression, message.has_properties
                flags = _PUSH_PROPERTIES if has_properties else 0
                before, after, padding = push_frame(queue_id, size, subscription_id, flags, compression)
            pieces += (before, message.guid, after, payload, padding)
        out += b"".join(pieces)
        if len(out) > PUSH_BYTES_HIGH:
            self.ready = self.has_room = False
        self.host.dirty.add(self)

    # -- requests

    def _on_control(self, data: memoryview, frame: Frame) -> None:
        message = received(ControlMessage, data[frame.body : frame.end], schema_encoding(frame.type_specific))
        log.info("%s: received %s", self.description, Shown(message, frame.end - frame.body))
        match message.choice:
            case Disconnect():
                self._requests.drop()
                self.reply(message, DisconnectResponse())
                self._enter(TRANSITIONS[self.state, SessionTrigger.DISCONNECT])
            case choice if not self._requests.serve(message):
                self.log_improper(f"an unexpected {type(choice).__name__}")

    def _on_admin_control(self, data: memoryview, frame: Frame) -> None:
        """Execute an administrator's command; its encoding may change with each one."""
        message = received(ControlMessage, data[frame.body : frame.end], schema_encoding(frame.type_specific))
        match message.choice:
            case AdminCommand(command=command):
                if not self._rights.may_execute(command):
                    log.warning("%s: refused a command: not authorized", self.description)
                    self.reply(message, AdminCommandResponse(text=NOT_AUTHORIZED))
                    return
                status, text = self.host.run_command(command, self.description, self._rights.may_read)
                log.info("%s: Send response message of %d characters, status %d", self.description, len(text), status)
                self.reply(message, AdminCommandResponse(text=text))
            case Disconnect():
                self.reply(message, DisconnectResponse())
                self._enter(TRANSITIONS[self.state, SessionTrigger.DISCONNECT])
            case _:
                self.log_improper(f"an unexpected {type(message.choice).__name__}")

    def reply(self, request: ControlMessage, choice: object) -> None:
        response = ControlMessage(r_id=request.r_id, choice=choice)  # type: ignore[arg-type]
        self.send_event(self._encode(response))

    def _encode(self, message: ControlMessage | NegotiationMessage) -> bytes:
        return build_schema_event(codec.encode(message, self._encoding), EventType.CONTROL, self._encoding)

    def send_event(self, event: Buffer | bytearray) -> None:
        self.out.whole(event)
        self.host.dirty.add(self)

    # -- heartbeats

    def _on_heartbeat_request(self, data: memoryview, frame: Frame) -> None:
        self._knows_heartbeats = True
        self.send_event(HEARTBEAT_RESPONSE)

    def _on_heartbeat_response(self, data: memoryview, frame: Frame) -> None:
        self._knows_heartbeats = True  # `receive` has noted the time
