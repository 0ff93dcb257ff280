"""A connection to a broker that speaks the protocol properly until told otherwise, and a client that always does.

`Peer` introduces itself and reads whole events; `Honest` posts and reads beside peers that misbehave, and records what
went wrong.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import deque
from types import TracebackType

from crc32c import crc32c

from formats.bmq.control import ber
from formats.bmq.control.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientType,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlMessage,
    Expression,
    GuidInfo,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.wire.ack import iter_acks
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import (
    HEARTBEAT_RESPONSE,
    EventType,
    build_event,
    build_schema_event,
    iter_frames,
    schema_message,
)
from formats.bmq.wire.push import iter_pushes
from formats.bmq.wire.put import append_put

__all__ = ["HOST", "Honest", "Lost", "Peer", "client_identity"]

HOST = "127.0.0.1"
READ, WRITE, ACK = 2, 4, 8
LENGTH_MAX = 1 << 29
RECEIVE_BYTES = 1 << 18


class Lost(Exception):
    """The broker has closed the connection, or does not answer."""


def client_identity(
    client_type: ClientType = ClientType.TCPCLIENT, *, makes_guids: bool = True, features: str = ""
) -> ClientIdentity:
    return ClientIdentity(
        protocol_version=1,
        client_type=client_type,
        process_name="fuzz",
        features=features or "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX;SUBSCRIPTIONS:CONFIGURE_STREAM",
        guid_info=GuidInfo(client_id="0A0B0C0D0E0F" if makes_guids else "", nano_seconds_from_epoch=0),
    )


class Peer:
    """A connection; `response` is the broker's description of itself. `take` answers heartbeats."""

    def __init__(self, port: int, identity: ClientIdentity, timeout_s: float = 10.0) -> None:
        try:
            self.sock = socket.create_connection((HOST, port), timeout_s)
        except OSError as error:
            raise Lost(str(error)) from error
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self.send(build_schema_event(ber.encode(NegotiationMessage(choice=identity))))
        deadline = time.monotonic() + timeout_s
        events: list[bytes] = []
        while not events:
            if time.monotonic() > deadline:
                raise Lost("no answer to the identity")
            events = self.take(0.2)
        view = memoryview(events[0])
        (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
        choice = ber.decode(NegotiationMessage, schema_message(view, frame.body, frame.end)).choice
        assert isinstance(choice, BrokerResponse)
        self.response = choice
        self.more = events[1:]

    def send(self, data: bytes) -> None:
        try:
            self.sock.settimeout(10.0)
            self.sock.sendall(data)
        except OSError as error:
            raise Lost(str(error) or type(error).__name__) from error

    def take(self, wait_s: float) -> list[bytes]:
        """The whole events received, after a wait if there are none."""
        try:
            self.sock.settimeout(max(wait_s, 0.0001))
            data = self.sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            raise Lost(str(error)) from error
        if not data:
            raise Lost("the broker closed the connection")
        self._received += data
        view = memoryview(bytes(self._received))
        found, at = [], 0
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            if frame.type == EventType.HEARTBEAT_REQ:
                self.send(HEARTBEAT_RESPONSE)
            elif frame.type != EventType.HEARTBEAT_RSP:
                found.append(bytes(view[at : frame.end]))
            at = frame.end
        del self._received[:at]
        return found

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class Honest(threading.Thread):
    """Posts to its own queue and reads it, one message after another, until stopped.

    `faults` are a refusal, a lost connection, a message lost, changed, doubled or out of order, or one that took longer
    than `bound_s`. A `patient` one connects again instead, and only counts: `done` is the number of messages delivered.
    """

    PERIOD_S = 0.02
    WINDOW = 200

    def __init__(self, port: int, domain: str, *, bound_s: float, app: str = "", patient: bool = False) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.uri = f"bmq://{domain}/honest-{secrets.token_hex(4)}"
        self.app = app
        self.bound_s = bound_s
        self.patient = patient
        self.faults: list[str] = []
        self.done = 0
        self.slowest_s = 0.0
        self.connections = 0
        self._enough = threading.Event()

    def stop(self) -> None:
        """Stop posting; messages still missing after a while are faults."""
        self._enough.set()
        self.join(self.bound_s * 3)
        if self.is_alive():
            self.faults.append("does not end")

    def run(self) -> None:
        while not self._enough.is_set():
            try:
                self.connections += 1
                with Peer(self.port, client_identity(), self.bound_s) as peer:
                    _Course(self, peer).run()
            except Lost as error:
                if not self.patient:
                    self.faults.append(f"lost its broker: {error}")
                    return
                self._enough.wait(0.3)
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                return

    @property
    def is_over(self) -> bool:
        return self._enough.is_set()


class _Course:
    """Posting and reading over one connection."""

    def __init__(self, honest: Honest, peer: Peer) -> None:
        self._honest = honest
        self._peer = peer
        self._events: deque[bytes] = deque(peer.more)
        self._salt = secrets.token_bytes(8)
        self._posted: dict[bytes, tuple[int, float]] = {}
        self._unacked: set[bytes] = set()
        self._last = -1
        self._requests = 0

    def run(self) -> None:
        honest = self._honest
        self._open()
        number = 0
        next_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if honest.is_over and not (self._posted or self._unacked):
                return
            if not honest.is_over and now_s >= next_s and len(self._posted) < honest.WINDOW:
                self._post(number, now_s)
                number += 1
                next_s = max(next_s + honest.PERIOD_S, now_s)
            for event in self._take(0.01):
                self._on_event(event)
            self._judge_delays()

    def _take(self, wait_s: float) -> list[bytes]:
        if self._events:
            taken = list(self._events)
            self._events.clear()
            return taken
        return self._peer.take(wait_s)

    def _open(self) -> None:
        honest = self._honest
        for queue_id, flags in ((1, WRITE | ACK), (2, READ)):
            app = honest.app if flags == READ else ""
            parameters = QueueHandleParameters(
                uri=f"{honest.uri}?id={app}" if app else honest.uri,
                q_id=queue_id,
                sub_id_info=SubQueueIdInfo(sub_id=1, app_id=app) if app else None,
                flags=flags,
                read_count=int(flags == READ),
                write_count=int(flags != READ),
            )
            self._ask(OpenQueue(handle_parameters=parameters), OpenQueueResponse)
        consumer = ConsumerInfo(
            max_unconfirmed_messages=1 << 20,
            max_unconfirmed_bytes=1 << 40,
            consumer_priority=0,
            consumer_priority_count=1,
        )
        subscription = Subscription(s_id=1, expression=Expression(text=""), consumers=(consumer,))
        stream = StreamParameters(app_id=honest.app or "__default", subscriptions=(subscription,))
        self._ask(ConfigureStream(q_id=2, stream_parameters=stream), ConfigureStreamResponse)

    def _ask(self, choice: OpenQueue | ConfigureStream, wanted: type[object]) -> None:
        self._requests += 1
        message = ControlMessage(r_id=self._requests, choice=choice)
        self._peer.send(build_schema_event(ber.encode(message)))
        deadline = time.monotonic() + self._honest.bound_s
        while time.monotonic() < deadline:
            for event in self._take(0.1):
                view = memoryview(event)
                (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
                if frame.type != EventType.CONTROL:
                    self._events.append(event)
                    continue
                answer = ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
                if isinstance(answer.choice, Status):
                    raise Lost(f"{type(choice).__name__} is refused: {answer.choice}")
                assert isinstance(answer.choice, wanted)
                return
        raise Lost(f"no answer to {type(choice).__name__} in {self._honest.bound_s} s")

    def _post(self, number: int, now_s: float) -> None:
        guid = self._salt + number.to_bytes(8, "big")
        data = number.to_bytes(8, "big") + self._salt * (number % 40)
        out = bytearray()
        append_put(out, 1, guid, data, crc32c(data))
        self._posted[guid] = number, now_s
        self._unacked.add(guid)
        self._peer.send(build_event(EventType.PUT, out))

    def _on_event(self, event: bytes) -> None:
        view = memoryview(event)
        (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
        if frame.type == EventType.ACK:
            for ack in iter_acks(view, frame.body, frame.end):
                if ack.status:
                    raise Lost(f"a message is refused with {ack.status}")
                self._unacked.discard(ack.guid)
        elif frame.type == EventType.PUSH:
            guids = []
            for push in iter_pushes(view, frame.body, frame.end):
                guids.append(push.guid)
                self._on_message(push.guid, bytes(push.data))
            self._peer.send(build_confirm_event((2, guid, int(bool(self._honest.app))) for guid in guids))

    def _on_message(self, guid: bytes, data: bytes) -> None:
        honest = self._honest
        found = self._posted.pop(guid, None)
        if found is None:
            # From a lost connection, or a second time.
            if not honest.patient:
                honest.faults.append(f"message {guid.hex()} came and was not awaited")
            return
        number, posted_s = found
        if data != number.to_bytes(8, "big") + self._salt * (number % 40):
            honest.faults.append(f"message {number} is not what was posted")
        if number <= self._last and not honest.patient:
            honest.faults.append(f"message {number} came behind {self._last}")
        self._last = number
        honest.done += 1
        honest.slowest_s = max(honest.slowest_s, time.monotonic() - posted_s)

    def _judge_delays(self) -> None:
        if not self._posted:
            return
        number, posted_s = next(iter(self._posted.values()))
        if time.monotonic() - posted_s > self._honest.bound_s:
            raise Lost(f"message {number} has not come in {self._honest.bound_s} s, {len(self._unacked)} are not acked")
