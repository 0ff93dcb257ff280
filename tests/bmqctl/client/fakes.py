"""The broker's side of a session, as far as the client's tests need one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientType,
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    GuidInfo,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
    RoutingConfiguration,
    Status,
    StatusCategory,
)
from formats.bmq.wire.ack import ACK_HEADER_BYTES, pack_ack
from formats.bmq.wire.confirm import iter_confirms
from formats.bmq.wire.event import (
    HEARTBEAT_RESPONSE,
    EncodingType,
    EventType,
    build_event,
    build_schema_event,
    next_frame,
    schema_encoding,
)
from formats.bmq.wire.push import append_push
from formats.bmq.wire.put import PutFlag, iter_puts

FEATURES = "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX;SUBSCRIPTIONS:CONFIGURE_STREAM"
SUCCESS = Status(category=StatusCategory.SUCCESS, code=0)


@dataclass
class FakeBroker:
    """Grants everything: acks each posted message, and pushes it to the consumers."""

    features: str = FEATURES
    refusal: Status | None = None
    heartbeat_interval_ms: int = 3000
    max_missed_heartbeats: int = 10
    ack_status: int = 0
    echo: bool = True
    refuse_queues: Status | None = None
    # Kinds of requests that are heard and not answered, and whether messages are not either.
    mute: tuple[type, ...] = ()
    mute_puts: bool = False
    deduplication_time_ms: int = 300_000
    identity: ClientIdentity | None = None
    asked: list[Any] = field(default_factory=list)
    heard: list[EventType] = field(default_factory=list)
    posted: list[tuple[bytes, bytes]] = field(default_factory=list)
    confirmed: list[tuple[int, bytes, int]] = field(default_factory=list)
    consumers: dict[int, int] = field(default_factory=dict)
    held: bytes = b""

    def receive(self, data: bytes) -> bytes:
        """Process `data` and return the broker's answer."""
        self.held += data
        out = b""
        at = 0
        while frame := next_frame(self.held, at, len(self.held), 1 << 30):
            view = memoryview(self.held)
            kind = EventType(frame.type)
            self.heard.append(kind)
            match kind:
                case EventType.CONTROL if self.identity is None:
                    out += self._negotiate(view[frame.body : frame.end])
                case EventType.CONTROL:
                    encoding = schema_encoding(frame.type_specific)
                    codec = ber if encoding is EncodingType.BER else jsonc
                    message = codec.decode(ControlMessage, view[frame.body : frame.end])
                    self.asked.append(message.choice)
                    at = frame.end
                    if isinstance(message.choice, self.mute):
                        continue
                    reply = codec.encode(ControlMessage(r_id=message.r_id, choice=self._grant(message.choice)))
                    out += build_schema_event(reply, EventType.CONTROL, encoding)
                case EventType.PUT:
                    out += self._take_puts(view, frame.body, frame.end)
                case EventType.CONFIRM:
                    self.confirmed += iter_confirms(view, frame.body, frame.end)
                case EventType.HEARTBEAT_REQ:
                    out += HEARTBEAT_RESPONSE
                case _:
                    pass
            at = frame.end
        self.held = self.held[at:]
        return out

    def hang_up(self) -> None:
        """The connection is gone, and all that belonged to it."""
        self.identity = None
        self.held = b""
        self.consumers.clear()

    def push(self, queue_id: int, subscription_id: int, guid: bytes, data: bytes) -> bytes:
        body = bytearray()
        append_push(body, queue_id, guid, data, subscription_id, 0, 0, 0)
        return build_event(EventType.PUSH, body)

    def ack(self, queue_id: int, guids: list[bytes]) -> bytes:
        messages = b"".join(pack_ack(self.ack_status, 0, guid, queue_id) for guid in guids)
        return build_event(EventType.ACK, ACK_HEADER_BYTES + messages)

    def _negotiate(self, content: memoryview) -> bytes:
        identity = ber.decode(NegotiationMessage, content).choice
        assert isinstance(identity, ClientIdentity)
        self.identity = identity
        response = BrokerResponse(
            result=self.refusal or SUCCESS,
            protocol_version=1,
            broker_version=999999,
            broker_identity=ClientIdentity(
                protocol_version=1,
                client_type=ClientType.TCPBROKER,
                features=self.features,
                guid_info=GuidInfo(),
            ),
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_missed_heartbeats=self.max_missed_heartbeats,
        )
        return build_schema_event(ber.encode(NegotiationMessage(choice=response)))

    def _grant(self, request: Any) -> Any:
        match request:
            case OpenQueue() if self.refuse_queues is not None:
                return self.refuse_queues
            case OpenQueue():
                return OpenQueueResponse(
                    original_request=request,
                    routing_configuration=RoutingConfiguration(flags=0),
                    deduplication_time_ms=self.deduplication_time_ms,
                )
            case ConfigureStream():
                for subscription in request.stream_parameters.subscriptions:
                    self.consumers[request.q_id] = subscription.s_id
                return ConfigureStreamResponse(request=request)
            case CloseQueue():
                return CloseQueueResponse()
            case Disconnect():
                return DisconnectResponse()
        raise AssertionError(request)

    def _take_puts(self, view: memoryview, start: int, end: int) -> bytes:
        out = b""
        for put in iter_puts(view, start, end):
            self.posted.append((put.guid, bytes(put.data)))
            if self.mute_puts:
                continue
            if put.flags & PutFlag.ACK_REQUESTED:
                out += self.ack(put.queue_id, [put.guid])
            if self.echo and put.queue_id in self.consumers and not self.ack_status:
                body = bytearray()
                append_push(
                    body,
                    put.queue_id,
                    put.guid,
                    put.data,
                    self.consumers[put.queue_id],
                    put.flags & 2,
                    put.compression,
                    put.schema_id,
                )
                out += build_event(EventType.PUSH, body)
        return out
