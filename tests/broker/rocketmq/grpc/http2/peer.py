"""A connection between a `GrpcSession` and the client side of `h2`, without sockets."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import StreamClosedError

from broker.rocketmq.grpc.http2.call import Limits, Service
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.http2.wire import frame_message
from formats.rocketmq.hosts import Host

__all__ = ["Client"]

PREFIX = "/apache.rocketmq.v2.MessagingService/"


class Client:
    """A client, the session that serves it, and a clock."""

    def __init__(self, service: Service, limits: Limits | None = None) -> None:
        self.ms = 1_000
        self.changes = 0
        self.session = GrpcSession(1, Host("127.0.0.1", 5), service, self._changed, lambda: self.ms, limits)
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.http.initiate_connection()
        self.headers: dict[int, dict[str, str]] = {}
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.goaway: int | None = None
        self.acknowledges = True
        self.exchange()

    def _changed(self, session: GrpcSession) -> None:
        self.changes += 1

    def exchange(self) -> None:
        """Carry bytes both ways until there are none."""
        while True:
            there = self.http.data_to_send()
            if there:
                assert self.session.receive(memoryview(there)) == len(there)
            back = bytes(self.session.take_output())
            if back:
                for event in self.http.receive_data(back):
                    self._take(event)
            if not there and not back:
                return

    def _take(self, event: Any) -> None:
        if isinstance(event, events.ResponseReceived | events.TrailersReceived):
            self.headers.setdefault(event.stream_id, {}).update(
                (str(name), str(value)) for name, value in event.headers
            )
        elif isinstance(event, events.DataReceived):
            self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
            if self.acknowledges:
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, events.StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, events.StreamReset):
            self.reset[event.stream_id] = event.error_code
        elif isinstance(event, events.ConnectionTerminated):
            self.goaway = event.error_code

    def is_over(self) -> bool:
        """Return whether the session is over."""
        return self.session.finished

    def open(self, method: str, **headers: str) -> int:
        """Begin a call; its stream."""
        stream_id: int = self.http.get_next_available_stream_id()
        known = {
            ":method": "POST",
            ":scheme": "http",
            ":path": PREFIX + method,
            ":authority": "broker",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        known.update({name.replace("_", "-"): value for name, value in headers.items()})
        self.http.send_headers(stream_id, list(known.items()))
        return stream_id

    def call(self, method: str, *messages: bytes, **headers: str) -> int:
        """Make a call with these messages, and let the session take it; its stream."""
        stream_id = self.open(method, **headers)
        # The session may have answered before the end, and reset the rest.
        with suppress(StreamClosedError):
            for message in messages:
                self.send(stream_id, message)
            self.http.end_stream(stream_id)
        self.exchange()
        return stream_id

    def send(self, stream_id: int, message: bytes) -> None:
        """Send a message of a call, as the session has room for it."""
        data = frame_message(message)
        while data:
            room = min(self.http.local_flow_control_window(stream_id), self.http.max_outbound_frame_size)
            assert room > 0
            self.http.send_data(stream_id, data[:room])
            data = data[room:]
            self.exchange()

    def messages(self, stream_id: int) -> list[bytes]:
        """The messages of an answer."""
        data, found = self.data.get(stream_id, b""), []
        while data:
            end = 5 + int.from_bytes(data[1:5])
            found.append(data[5:end])
            data = data[end:]
        return found

    def status(self, stream_id: int) -> str | None:
        """The status of an answer; None if it is not over."""
        return self.headers.get(stream_id, {}).get("grpc-status")
