"""A client's session without I/O: bytes in, events out; calls in, bytes out.

The driver passes in the bytes read (`receive`), the time (`tick`, at `deadline_ns` at the latest) and the connection's
end (`cut`), and writes the output of `data_to_send`. All calls share one monotonic clock.

A session with `resume` outlives its connections: when `state` is RECONNECTING, the driver makes a new one and calls
`start` again. Queues are then reopened, and unacked messages sent again.

Source of the behaviour: `bmqimp::BrokerSession`, `bmqimp::NegotiatedChannelFactory`, `bmqp::HeartbeatMonitor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from crc32c import crc32c

from bmqctl.client.protocol.authentication import Authentication, Credentials, NotAuthenticated
from bmqctl.client.protocol.control import ProtocolFault, Requests, Unusable
from bmqctl.client.protocol.events import (
    Ack,
    Acks,
    Closed,
    ConnectionLost,
    Event,
    Pushes,
    QueueHandle,
    Reconnected,
    Refused,
    Restored,
    Started,
    Stopped,
    StreamOptions,
)
from bmqctl.client.protocol.guid import ClientGuidGenerator
from bmqctl.client.protocol.heartbeats import Check, Heartbeats
from bmqctl.client.protocol.identity import HANDSHAKE_ADVICE, client_identity, has_feature
from bmqctl.client.protocol.lifecycle import SESSION_TABLE, Impossible, Queue, Session, SessionInput, step
from bmqctl.client.protocol.message import Message, Properties, encode_data, subscription_ids
from bmqctl.client.protocol.output import Output
from bmqctl.client.protocol.unacked import Posted, nack
from formats.bmq.codes import EVENT_SIZE_MAX, PUT_SIZE_MAX
from formats.bmq.control import ber, codec
from formats.bmq.control.messages import BrokerResponse, ControlMessage, NegotiationMessage, StatusCategory
from formats.bmq.wire.ack import AckStatus, iter_acks
from formats.bmq.wire.confirm import pack_confirm
from formats.bmq.wire.event import (
    EVENT_HEADER,
    EVENT_HEADER_SIZE,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    EncodingType,
    EventType,
    Frame,
    build_schema_event,
    next_frame,
    schema_encoding,
)
from formats.bmq.wire.push import iter_pushes, pushes_to_one
from formats.bmq.wire.put import PutFlag, append_put
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["Machine", "MachineOptions", "Unusable"]

_CONFIRM_BATCH: Final = 65536
# An event is closed at its size, and may exceed that by no more than these.
_CONFIRM_PIECE: Final = 4096
_SESSION_NUMBERS: Final = count(1)
_EXPIRY_INTERVAL_NS: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Options of a session. `timeout_ns` is for negotiation and each request; `put_batch` limits the messages of a PUT.

    With `resume` the session survives the loss of its connection, and every post is eventually answered.
    """

    process_name: str
    pid: int
    timeout_ns: int
    put_batch: int = 1024
    user_agent: str = "bmqctl"
    resume: bool = False
    credentials: Credentials | None = None


class Machine:
    """One session with one broker, from negotiation to disconnect."""

    def __init__(self, options: MachineOptions, guids: ClientGuidGenerator, now_ns: int) -> None:
        self._options = options
        self._guids = guids
        self.state = Session.NEW
        self._requests = Requests(self._send_control, options.timeout_ns)
        self._encoding = EncodingType.BER
        self._authentication = Authentication(options.credentials) if options.credentials else None
        self._session_number = next(_SESSION_NUMBERS)
        self.last_fault = ""
        self._was_started = False
        # By GUID, in the order of posting; held back until queues are reopened.
        self._posted: dict[bytes, Posted] = {}
        self._holding = False
        self._next_expiry_ns = 0
        # The received part of an incomplete event, and the number of bytes needed.
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = EVENT_HEADER_SIZE
        self._out = Output()
        self._negotiation_deadline_ns = now_ns + options.timeout_ns
        self._heartbeats = Heartbeats()

    # Calls

    def start(self, now_ns: int) -> None:
        self.state = step(SESSION_TABLE, self.state, SessionInput.START)
        self._negotiation_deadline_ns = now_ns + self._options.timeout_ns
        if self._authentication is not None:
            self._out.whole(self._authentication.request())
        else:
            self._introduce()

    def _introduce(self) -> None:
        identity = client_identity(
            self._options.process_name,
            self._options.pid,
            self._session_number,
            self._guids.info(),
            self._options.user_agent,
        )
        self._out.whole(build_schema_event(ber.encode(NegotiationMessage(choice=identity))))

    def open_queue(
        self, uri: str, *, read: bool, write: bool, options: StreamOptions, now_ns: int, ack: bool = False
    ) -> QueueHandle:
        """Request a queue; `Opened` or `Refused` follows.

        Raises `FormatError` if `uri` is not a URI, and `ValueError` for an option out of its range.

        `ack` announces to the broker that acks are wanted; each message posted requests its own.
        """
        options.check()
        self._must_be_usable()
        return self._requests.open(uri, read=read, write=write, ack=ack, options=options, now_ns=now_ns)

    def configure_queue(self, queue: QueueHandle, options: StreamOptions, now_ns: int) -> None:
        """Change the configuration of a queue; `Configured` or `Refused` follows.

        Raises `ValueError` for an option out of its range.
        """
        options.check()
        self._must_be_usable()
        self._requests.configure(queue, options, now_ns)

    def close_queue(self, queue: QueueHandle, now_ns: int) -> list[Event]:
        """Close a queue; `Closed` or `Refused` follows, immediately or later. The queue is closed either way."""
        self._must_be_usable()
        return self._with_nacks(self._requests.close(queue, now_ns))

    def post(
        self,
        queue: QueueHandle,
        payload: Buffer,
        properties: Properties | None,
        *,
        compress: bool,
        correlation: Any,
        now_ns: int,
        ack: bool = True,
        guid: bytes | None = None,
    ) -> bytes:
        """Post a message and return its GUID; an `Ack` with `correlation` follows if `ack` is True.

        A given `guid` must be unique: the broker keeps one message for each. Raises `ValueError` if the message is too
        large, or a property cannot be encoded.
        """
        if not queue.write or not (queue.is_open or queue.state in _RETURNING):
            raise Unusable(f"{queue}: not open for writing")
        data, flags, compression, schema_id = encode_data(payload, properties, compress=compress)
        if len(data) > PUT_SIZE_MAX:
            raise ValueError(f"a message of {len(data)} bytes: the limit is {PUT_SIZE_MAX}")
        if not ack:
            flags &= ~PutFlag.ACK_REQUESTED
        guid = guid or self._guids.make(now_ns)
        checksum = crc32c(data)
        if ack or self._holding:
            self._posted[guid] = Posted(queue, correlation, now_ns, data, checksum, flags, compression, schema_id)
        if not self._holding:
            out = self._out.begin(EventType.PUT, self._options.put_batch)
            append_put(out, queue.queue_id, guid, data, checksum, flags, compression, schema_id)
        return guid

    def confirm(self, queue: QueueHandle, guid: bytes) -> None:
        if queue.state is not Queue.OPENED:
            raise Unusable(f"{queue}: not open")
        out = self._out.begin(EventType.CONFIRM, _CONFIRM_BATCH)
        out += pack_confirm(queue.queue_id, guid, queue.sub_id)

    def confirm_all(self, queue: QueueHandle, guids: Sequence[bytes]) -> None:
        if queue.state is not Queue.OPENED:
            raise Unusable(f"{queue}: not open")
        queue_id, sub_id = queue.queue_id, queue.sub_id
        for start in range(0, len(guids), _CONFIRM_PIECE):
            piece = guids[start : start + _CONFIRM_PIECE]
            out = self._out.begin(EventType.CONFIRM, _CONFIRM_BATCH)
            out += b"".join([pack_confirm(queue_id, guid, sub_id) for guid in piece])

    def disconnect(self, now_ns: int) -> list[Event]:
        """End the session properly; `Stopped` follows, immediately if there is no connection."""
        if self.state in (Session.NEW, Session.NEGOTIATING, Session.RECONNECTING):
            return self.give_up(None)
        self.state = step(SESSION_TABLE, self.state, SessionInput.DISCONNECT)
        nacks: list[Event] = self._nack(lambda _: True) if self._options.resume else []
        self._requests.disconnect(now_ns)
        return nacks

    def give_up(self, fault: str | None) -> list[Event]:
        return [] if self.state is Session.STOPPED else self._end(SessionInput.LOST, fault)

    @property
    def unanswered(self) -> int:
        """The number of unacked posts; before they are sent, it includes posts that request no ack."""
        return len(self._posted)

    def has_unanswered(self, queue: QueueHandle) -> bool:
        return any(each.queue is queue for each in self._posted.values())

    # Output

    @property
    def pending_size(self) -> int:
        return len(self._out.data)

    def data_to_send(self) -> bytearray:
        return self._out.take()

    @property
    def deadline_ns(self) -> int | None:
        """Time at which `tick` is due, or None if nothing is due yet."""
        if self.state is Session.NEGOTIATING:
            return self._negotiation_deadline_ns
        if self.state not in _LIVING:
            return None
        deadlines = [self._heartbeats.due_ns] if self._heartbeats.due_ns is not None else []
        if self._requests.deadline_ns is not None:
            deadlines.append(self._requests.deadline_ns)
        if self._authentication is not None and self._authentication.due_ns is not None:
            deadlines.append(self._authentication.due_ns)
        return min(deadlines, default=None)

    # Input

    def receive(self, data: bytes, now_ns: int) -> list[Event]:
        if self.state is Session.STOPPED:
            return []
        self._heartbeats.heard = True
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        if len(self._chunks) > 1:
            data = b"".join(self._chunks)
        events: list[Event] = []
        try:
            at = self._take_frames(data, now_ns, events)
        except NotAuthenticated as fault:
            return events + self.lost(f"the broker refused our credentials: {fault}")
        except (FormatError, ProtocolFault, Impossible) as fault:
            return events + self.lost(f"not understood: {fault}")
        if self.state is Session.RECONNECTING:
            return events
        rest = data[at:]
        self._chunks = [rest] if rest else []
        self._held = len(rest)
        return events

    def tick(self, now_ns: int) -> list[Event]:
        if self.state is Session.NEGOTIATING:
            if now_ns >= self._negotiation_deadline_ns:
                return self.lost("the broker did not answer our identity")
            return []
        if self.state not in _LIVING:
            return []
        events = self._with_nacks(list(self._requests.expire(now_ns)))
        if self._holding and now_ns >= self._next_expiry_ns:
            self._next_expiry_ns = now_ns + _EXPIRY_INTERVAL_NS
            events += self._nack(lambda each: now_ns - each.posted_ns > each.queue.deduplication_time_ms * 1_000_000)
        if self._requests.broken and self._options.resume:
            return events + self.lost(self._requests.broken)
        if self._requests.disconnected:
            return events + self._end(SessionInput.DISCONNECTED, None)
        due_ns = self._authentication.due_ns if self._authentication is not None else None
        if self._authentication is not None and due_ns is not None and now_ns >= due_ns:
            self._out.whole(self._authentication.request())
        match self._heartbeats.check(now_ns):
            case Check.SILENT:
                self._out.whole(HEARTBEAT_REQUEST)
            case Check.LOST:
                events += self.lost(f"the broker missed {self._heartbeats.missed} heartbeats", silent=True)
        return events

    def cut(self, fault: str) -> list[Event]:
        """Handle the end of the connection by the network or the broker; `lost` without a reason of this side's."""
        return self.lost(fault if self._was_started else f"{fault}: {HANDSHAKE_ADVICE}")

    def lost(self, fault: str, silent: bool = False) -> list[Event]:
        """Handle the end of the connection, or give it up as unusable."""
        self.last_fault = fault
        if not self._options.resume or self.state in (Session.NEW, Session.DISCONNECTING, Session.STOPPED):
            return self.give_up(fault)
        if self.state is Session.RECONNECTING:
            return []
        self.state = step(SESSION_TABLE, self.state, SessionInput.CUT)
        self._holding = self._was_started
        self._out.clear()
        self._chunks.clear()
        self._held = 0
        self._needed = EVENT_HEADER_SIZE
        self._heartbeats.stop()
        self._next_expiry_ns = 0
        if self._authentication is not None:
            self._authentication.due_ns = None
        events = self._with_nacks(list(self._requests.cut()))
        return [*events, ConnectionLost(fault, silent)] if self._was_started else events

    # Frames

    def _take_frames(self, data: bytes, now_ns: int, events: list[Event]) -> int:
        """Process the complete events at the start of `data`; return the offset of their end."""
        view = memoryview(data)
        size = len(data)
        at = 0
        while self.state not in (Session.STOPPED, Session.RECONNECTING):
            frame = next_frame(view, at, size, EVENT_SIZE_MAX)
            if frame is None:
                break
            self._take(data, view, frame, now_ns, events)
            at = frame.end
        # Until the length of the next event is known, only its header is needed.
        header_known = size - at >= EVENT_HEADER_SIZE
        self._needed = EVENT_HEADER.unpack(view, at).length if header_known else EVENT_HEADER_SIZE
        return at

    def _take(self, data: bytes, view: memoryview, frame: Frame, now_ns: int, events: list[Event]) -> None:
        kind, type_specific, body, end = frame
        match kind:
            case EventType.PUSH if self.state is not Session.NEGOTIATING:
                self._take_pushes(data, body, end, events)
            case EventType.ACK if self.state is not Session.NEGOTIATING:
                self._take_acks(view, body, end, events)
            case EventType.CONTROL:
                content = view[body:end]
                encoding = schema_encoding(type_specific)
                if self.state is Session.NEGOTIATING:
                    self._negotiated(codec.decode(NegotiationMessage, content, encoding), now_ns, events)
                else:
                    answers = self._requests.answered(codec.decode(ControlMessage, content, encoding), now_ns)
                    events += self._with_nacks(list(answers))
                    if self._requests.disconnected:
                        events += self._end(SessionInput.DISCONNECTED, None)
                    elif self._holding and not self._requests.reopening:
                        events += self._restore()
            case EventType.AUTHENTICATION if self._authentication is not None:
                self._authentication.answered(view[body:end], now_ns)
                if self.state is Session.NEGOTIATING:
                    self._introduce()
            case EventType.HEARTBEAT_REQ:
                self._out.whole(HEARTBEAT_RESPONSE)
            case EventType.HEARTBEAT_RSP:
                pass
            case _:
                raise ProtocolFault(f"an event of type {EventType(kind).name} in state {self.state.name}")

    def _take_pushes(self, data: bytes, start: int, end: int, events: list[Event]) -> None:
        subscriptions = self._requests.subscriptions
        batches: dict[QueueHandle, list[Message]] = {}
        while start < end:
            messages, start = pushes_to_one(data, start, end, Message)
            if not messages:
                self._take_other_pushes(memoryview(data), start, end, batches)
                break
            queue = subscriptions.get(messages[0].subscription_id)
            # A message may cross the client's close request.
            if queue is not None:
                batches.setdefault(queue, []).extend(messages)
        events += [Pushes(queue, messages) for queue, messages in batches.items()]

    def _take_other_pushes(
        self, view: memoryview, start: int, end: int, batches: dict[QueueHandle, list[Message]]
    ) -> None:
        for push in iter_pushes(view, start, end):
            for subscription_id in subscription_ids(push.options):
                queue = self._requests.subscriptions.get(subscription_id)
                if queue is not None:
                    batches.setdefault(queue, []).append(Message.of(push, subscription_id))

    def _take_acks(self, view: memoryview, body: int, end: int, events: list[Event]) -> None:
        posted = self._posted
        acks = []
        for ack in iter_acks(view, body, end):
            status = _ACK_STATUS.get(ack.status, AckStatus.UNKNOWN)
            mine = posted.pop(ack.guid, None)
            if mine is not None:
                acks.append(Ack(status, ack.guid, mine.correlation, mine.queue))
            else:
                acks.append(Ack(status, ack.guid, None, self._requests.writer(ack.queue_id)))
        events.append(Acks(acks))

    # The session

    def _negotiated(self, message: NegotiationMessage, now_ns: int, events: list[Event]) -> None:
        broker = message.choice
        if not isinstance(broker, BrokerResponse):
            raise ProtocolFault(f"{type(broker).__name__} answers our identity")
        if broker.result.category is not StatusCategory.SUCCESS:
            events += self.lost(f"the broker refused us: {broker.result.message or broker.result.category.name}")
            return
        features = broker.broker_identity.features
        if not has_feature(features, "SUBSCRIPTIONS", "CONFIGURE_STREAM"):
            events += self.lost("the broker is too old: it does not know configureStream")
            return
        if not has_feature(features, "PROTOCOL_ENCODING", "BER"):
            self._encoding = EncodingType.JSON
        self.state = step(SESSION_TABLE, self.state, SessionInput.ACCEPTED)
        self._heartbeats.begin(broker.heartbeat_interval_ms, broker.max_missed_heartbeats, now_ns)
        events.append(Reconnected(broker) if self._was_started else Started(broker))
        self._was_started = True
        if self._holding:
            self._requests.reconnected(now_ns)
            if not self._requests.reopening:
                events += self._restore()

    def _restore(self) -> list[Event]:
        self._holding = False
        for guid, each in list(self._posted.items()):
            append_put(
                self._out.begin(EventType.PUT, self._options.put_batch),
                each.queue.queue_id,
                guid,
                each.data,
                each.crc32c,
                each.flags,
                each.compression,
                each.schema_id,
            )
            if not each.flags & PutFlag.ACK_REQUESTED:
                del self._posted[guid]
        return [Restored()]

    def _end(self, how: SessionInput, fault: str | None) -> list[Event]:
        self.state = step(SESSION_TABLE, self.state, how)
        nacks = self._nack(lambda _: True) if self._options.resume else []
        self._posted.clear()
        self._chunks.clear()
        return [*nacks, *self._requests.end(), Stopped(fault)]

    def _nack(self, which: Callable[[Posted], bool]) -> list[Event]:
        acks = nack(self._posted, which)
        return [Acks(acks)] if acks else []

    def _with_nacks(self, events: list[Event]) -> list[Event]:
        if not self._options.resume or not self._posted:
            return events
        closed = {event.queue for event in events if isinstance(event, Closed | Refused) and not event.queue.is_open}
        return self._nack(lambda each: each.queue in closed) + events if closed else events

    def _must_be_usable(self) -> None:
        usable = self.state is Session.STARTED or (self._was_started and self.state in _BETWEEN)
        if not usable:
            raise Unusable(f"the session is {self.state.name.lower()}")

    # Outgoing events

    def _send_control(self, message: ControlMessage) -> None:
        event = build_schema_event(codec.encode(message, self._encoding), EventType.CONTROL, self._encoding)
        self._out.whole(event)


_ACK_STATUS: Final = {status.value: status for status in AckStatus}
_LIVING: Final = (Session.STARTED, Session.RECONNECTING, Session.DISCONNECTING)
_BETWEEN: Final = (Session.RECONNECTING, Session.NEGOTIATING)
_RETURNING: Final = (Queue.PENDING, Queue.REOPENING, Queue.REOPENING_STREAM)
