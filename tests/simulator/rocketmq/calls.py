"""A connection to the gRPC service of a simulated process: HTTP/2, whose bytes pass when the world lets them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import StreamClosedError

from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.node import Node
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.messages import Message, decode, make
from tests.broker.rocketmq.grpc.http2.peer import Client
from tests.simulator.judges.invariants import Violation

__all__ = ["Calls", "Replied", "credential"]

# Takes the answers to a call; None if there will be none.
Replied = Callable[[list[Message] | None], None]
_DONE = "0"
# The codes of calls that fail between a proxy and a broker.
FAILURES = (Code.INTERNAL_ERROR, Code.INTERNAL_SERVER_ERROR, Code.PROXY_TIMEOUT)
HEAD_BYTES = 5
# The user whose client writes digits in upper case.
UPPER = "root"
DATE_TIME = "20260101T000000Z"


class _Http(Client):
    """The client side of HTTP/2."""

    def __init__(self, session: GrpcSession) -> None:
        self.session = session
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.http.initiate_connection()
        self.headers: dict[int, dict[str, str]] = {}
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.goaway: int | None = None
        self.acknowledges = True

    is_open = False

    def exchange(self) -> None:
        """Carry bytes both ways, if the world lets them pass."""
        if self.is_open:
            super().exchange()

    def read(self) -> bool:
        """Take what the session has sent; return False if that is nothing."""
        data = bytes(self.session.take_output())
        for event in self.http.receive_data(data) if data else ():
            self._take(event)
        return bool(data)


def credential(name: str, password: str) -> dict[str, str]:
    """Make the headers by which a user signs a call. Java's clients write the digits in upper case, others do not."""
    signature = hmac.new(password.encode(), DATE_TIME.encode(), hashlib.sha1).hexdigest()
    if name == UPPER:
        signature = signature.upper()
    text = f"MQv2-HMAC-SHA1 Credential={name}/x, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": text, "x_mq_date_time": DATE_TIME}


class Calls:
    """One connection of a client with a name, whose calls have these headers. See `wire.Connection`."""

    def __init__(self, node: Node, session: GrpcSession, name: str, headers: dict[str, str]) -> None:
        self.node = node
        self.is_over = False
        # A proxy that has lost a broker may not know the types of a topic for a while, and refuses all messages then.
        self.may_lack_types = False
        self._doubtful: set[int] = set()
        self._http = _Http(session)
        self._headers = {"x_mq_client_id": name, **headers}
        self._waiting: dict[int, tuple[str, Replied]] = {}
        self._told: dict[int, Callable[[Message], None]] = {}
        self._has_read = False
        # The broker reads nothing of it before this time.
        self.held_until_ms = 0
        # When nothing was held back last.
        self.free_ms = 0
        # The calls that the broker has not read.
        self.outgoing: list[str] = []

    @property
    def session(self) -> GrpcSession:
        """The broker's end."""
        return self._http.session

    @property
    def waiting(self) -> int:
        """The number of calls without an answer."""
        return len(self._waiting)

    def sign(self, name: str, password: str) -> None:
        """Make all calls from here on as a user."""
        self._headers |= credential(name, password)

    def call(self, method: str, request: Message, replied: Replied) -> None:
        """Make a call with the next step."""
        self.outgoing.append(method)
        stream = self._http.call(method, request.SerializeToString(), **self._headers)
        self._waiting[stream] = method, replied

    def tell(self, settings: Message, told: Callable[[Message], None]) -> None:
        """Open a stream of Telemetry with these settings; `told` takes what the broker says over it."""
        self.outgoing.append("Telemetry")
        stream = self._http.open("Telemetry", **self._headers)
        self._http.send(stream, make("TelemetryCommand", settings=settings).SerializeToString())
        self._told[stream] = told

    def deliver(self, size: int) -> None:
        """Let the process read what was sent."""
        self.outgoing.clear()
        self._http.is_open = True
        with suppress(StreamClosedError):
            self._http.exchange()
        self._http.is_open = False
        self._has_read = True

    def read(self) -> None:
        """Take what the process has sent."""
        if not self._http.read() and not self._has_read:
            return
        self._has_read = False
        for stream, told in self._told.items():
            # A question was asked before the answers that have come by now, or with them.
            data = self._http.data.get(stream, b"")
            while len(data) >= HEAD_BYTES and len(data) >= (end := HEAD_BYTES + int.from_bytes(data[1:HEAD_BYTES])):
                told(decode(METHODS["Telemetry"].response, data[HEAD_BYTES:end]))
                data = data[end:]
            self._http.data[stream] = data
        for stream, (method, replied) in list(self._waiting.items()):
            status = self._http.status(stream)
            if status is None:
                continue
            del self._waiting[stream]
            answers = [decode(METHODS[method].response, each) for each in self._http.messages(stream)]
            self._http.data.pop(stream, None)
            if status != _DONE:
                raise Violation(f"{method} ends with status {status}: {self._http.headers[stream]}")
            code = answers[0].status.code if answers else Code.OK
            lacks_types = self.may_lack_types and code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            is_lost = lacks_types or (stream in self._doubtful and code in FAILURES)
            self.is_over |= is_lost
            replied(None if is_lost else answers)

    def doubt(self) -> None:
        """Note that calls under way may be lost between the proxy and the broker."""
        self._doubtful |= self._waiting.keys()

    def lost(self) -> None:
        """The process is gone: nobody will answer."""
        waiting, self._waiting = self._waiting, {}
        for _, replied in waiting.values():
            replied(None)
