"""Calls over gRPC by sockets, plain or with TLS, without a client library."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

import trustme
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection

from bmqctl.systems.node_process import HOST
from broker.rocketmq.grpc.http2.wire import frame_message
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.messages import SERVICE, Message, decode, make
from tests.waiting import WAIT_S

__all__ = ["Caller", "ask_route", "connect"]


def connect(port: int, authority: trustme.CA | None = None) -> socket.socket:
    sock = socket.create_connection((HOST, port), WAIT_S)
    if authority is None:
        return sock
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    authority.configure_trust(context)
    wrapped = context.wrap_socket(sock, server_hostname=HOST)
    assert wrapped.selected_alpn_protocol() == "h2"
    return wrapped


class Caller:
    """A client over a connection, one call at a time; its calls have `headers` besides the usual ones."""

    def __init__(self, sock: socket.socket, client_id: str = "me", headers: Mapping[str, str] | None = None) -> None:
        self._headers = headers or {}
        self._sock = sock
        self._client_id = client_id
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._http.initiate_connection()

    def call(self, name: str, request: Message) -> list[Message]:
        data = self.ask(f"/{SERVICE}/{name}", request.SerializeToString())
        return [decode(METHODS[name].response, each) for each in data]

    def ask(self, path: str, request: bytes) -> list[bytes]:
        """Call a method of any service; return its answers, encoded."""
        stream = self._http.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "broker",
            "content-type": "application/grpc",
            "x-mq-client-id": self._client_id,
            **self._headers,
        }
        self._http.send_headers(stream, list(headers.items()))
        self._http.send_data(stream, frame_message(request), end_stream=True)
        data, ended = b"", False
        while not ended:
            self._sock.sendall(self._http.data_to_send())
            received = self._sock.recv(65_536)
            assert received, "the connection was closed"
            for event in self._http.receive_data(received):
                if isinstance(event, events.DataReceived) and event.stream_id == stream:
                    self._http.acknowledge_received_data(event.flow_controlled_length, stream)
                    data += event.data
                ended = ended or (isinstance(event, events.StreamEnded) and event.stream_id == stream)
        self._sock.sendall(self._http.data_to_send())
        answers = []
        while data:
            size = int.from_bytes(data[1:5], "big")
            answers.append(data[5 : 5 + size])
            data = data[5 + size :]
        return answers


def ask_route(sock: socket.socket, topic: str = "Normal") -> int:
    """Ask for the route of a topic over a new connection; return the answer's code."""
    (answer,) = Caller(sock).call("QueryRoute", make("QueryRouteRequest", topic=make("Resource", name=topic)))
    return int(answer.status.code)
