"""A socket that speaks the protocol as far as a test wants, and then anything else."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from bmqctl.testing import NodeProcess
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientType,
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    Expression,
    GuidInfo,
    NegotiationMessage,
    OpenQueue,
    QueueHandleParameters,
    StreamParameters,
    Subscription,
)
from formats.bmq.wire.event import (
    EVENT_HEADER_SIZE,
    PROTOCOL_VERSION,
    EventType,
    build_event,
    build_schema_event,
    next_frame,
)
from tests.waiting import WAIT_S

__all__ = ["Raw", "identity", "node_identity", "open_request"]

READ, WRITE = 2, 4


def identity(client_type: ClientType = ClientType.TCPCLIENT, name: str = "raw") -> bytes:
    """The event by which a client introduces itself."""
    me = ClientIdentity(
        protocol_version=1,
        client_type=client_type,
        process_name=name,
        features="PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX",
        guid_info=GuidInfo(client_id="0A0B0C0D0E0F", nano_seconds_from_epoch=0),
    )
    return build_schema_event(ber.encode(NegotiationMessage(choice=me)))


def node_identity(node_id: int, cluster_name: str = "local") -> bytes:
    """The event by which a node of the reference introduces itself as a member of a cluster."""
    me = ClientIdentity(
        protocol_version=PROTOCOL_VERSION,
        sdk_version=999_999,
        client_type=ClientType.TCPBROKER,
        process_name="bmqbrkr.tsk",
        host_name="localhost",
        features="PROTOCOL_ENCODING:BER,JSON;HA:GRACEFUL_SHUTDOWN,GRACEFUL_SHUTDOWN_V2",
        cluster_name=cluster_name,
        cluster_node_id=node_id,
        guid_info=GuidInfo(),
    )
    return build_schema_event(ber.encode(NegotiationMessage(choice=me)))


def open_request(uri: str, queue_id: int, flags: int, request_id: int = 1) -> bytes:
    parameters = QueueHandleParameters(
        uri=uri,
        q_id=queue_id,
        flags=flags,
        read_count=int(bool(flags & READ)),
        write_count=int(bool(flags & WRITE)),
        admin_count=0,
    )
    return build_schema_event(
        ber.encode(ControlMessage(r_id=request_id, choice=OpenQueue(handle_parameters=parameters)))
    )


def configure_request(queue_id: int, limit: int, request_id: int = 2) -> bytes:
    """The event that asks for at most `limit` messages and bytes."""
    consumer = ConsumerInfo(
        max_unconfirmed_messages=limit, max_unconfirmed_bytes=limit, consumer_priority=0, consumer_priority_count=1
    )
    parameters = StreamParameters(
        subscriptions=(Subscription(s_id=1, expression=Expression(text=""), consumers=(consumer,)),)
    )
    choice = ConfigureStream(q_id=queue_id, stream_parameters=parameters)
    return build_schema_event(ber.encode(ControlMessage(r_id=request_id, choice=choice)))


class Raw:
    """One connection, identified unless told otherwise."""

    def __init__(self, node: NodeProcess, *, identified: bool = True) -> None:
        self._node = node
        self._logged = node.log_length
        self.sock = socket.create_connection(("127.0.0.1", node.port), WAIT_S)
        self.name = "{}:{}".format(*self.sock.getsockname())
        self._received = bytearray()
        if identified:
            self.send(identity())
            kind, body = self.event()
            assert kind == EventType.CONTROL
            response = ber.decode(NegotiationMessage, body).choice
            assert isinstance(response, BrokerResponse)
            assert response.result.code == 0

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_event(self, kind: EventType, body: bytes = b"") -> None:
        self.send(build_event(kind, body))

    def event(self) -> tuple[EventType, bytes]:
        while True:
            frame = next_frame(self._received, 0, len(self._received), 1 << 30)
            if frame is not None:
                body = bytes(self._received[EVENT_HEADER_SIZE : frame.end])
                del self._received[: frame.end]
                return EventType(frame.type), body
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the node closed the connection")
            self._received += data

    def control(self) -> ControlMessage:
        """The node's next control message; heartbeats are skipped."""
        while True:
            kind, body = self.event()
            if kind == EventType.CONTROL:
                return ber.decode(ControlMessage, body)

    def rest(self) -> bytes:
        """All that the node sends before it closes; TimeoutError if it does not."""
        rest = bytearray(self._received)
        try:
            while data := self.sock.recv(1 << 16):
                rest += data
        except ConnectionResetError:
            pass  # it closed with bytes of ours unread
        return bytes(rest)

    def end_reason(self) -> str:
        """Wait for the reason in the node's log for which this connection ended.

        Earlier lines are skipped: an earlier connection may have had the same port.
        """
        line = self._node.wait_for(f"{self.name}: session ends: ", skip=self._logged)
        return line.partition("session ends: ")[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.sock.close()
