"""Bytes for a RocketMQ node as data, which can be written and sent again, and the sockets that send them."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import H2Error

from broker.rocketmq.grpc.http2.wire import frame_message
from formats.errors import FormatError
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.messages import Message, decode
from formats.rocketmq.remoting.frame import Frame, next_frame

__all__ = ["STRANGER", "Action", "Answers", "Sender", "load", "save"]

HOST = "127.0.0.1"
# The source address: no node, client or controller has it.
STRANGER = "127.0.0.66"
CONNECT_S = 5.0
# The longest wait for a broker that does not read.
SEND_S = 3.0
ANSWER_BYTES_MAX = 64 << 20
SHOWN_MAX = 300
_ENDS = (events.StreamEnded, events.StreamReset, events.ConnectionTerminated)
_REMOTING = ("broker", "nameserver", "controller", "proxy")


class Action(NamedTuple):
    """Bytes to send to a port: each piece, repeated as its number says.

    `copies` connections send it, each opened if missing; `link` is the number of the first. If `call` is not empty, the
    pieces are the messages of a call by gRPC. Answers are awaited for `wait_s`; with 0, nothing is read.
    """

    port: str
    what: str
    pieces: tuple[tuple[bytes, int], ...]
    link: int = 0
    copies: int = 1
    answers: int = 1
    wait_s: float = 0.3
    node: int = 0
    call: str = ""

    @property
    def size(self) -> int:
        return self.copies * sum(len(data) * times for data, times in self.pieces)

    def __str__(self) -> str:
        text = f"{self.port}{self.node or ''}: {self.what}"
        if self.copies > 1:
            text += f", by {self.copies} connections"
        return f"{text[:SHOWN_MAX]} ({self.size} bytes)"


class Answers(NamedTuple):
    """Answers to an action: frames, or messages of a call; `is_lost` is True if the broker closed the connection."""

    frames: Sequence[Frame] = ()
    messages: Sequence[Message] = ()
    is_lost: bool = False


def save(file: Path, head: Mapping[str, Any], actions: Iterable[Action]) -> None:
    """Write actions to a file, a line of JSON each, after `head`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        out.write(json.dumps(head) + "\n")
        for action in actions:
            pieces = [(base64.b64encode(data).decode(), times) for data, times in action.pieces]
            out.write(json.dumps({**action._asdict(), "pieces": pieces}) + "\n")


def load(file: Path) -> tuple[dict[str, Any], list[Action]]:
    head, *lines = file.read_text().splitlines()
    actions = []
    for line in lines:
        fields = json.loads(line)
        fields["pieces"] = tuple((base64.b64decode(data), times) for data, times in fields["pieces"])
        actions.append(Action(**fields))
    return json.loads(head), actions


class _Link:
    """A connection, and its unread bytes."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection((HOST, port), CONNECT_S, source_address=(STRANGER, 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.http: H2Connection | None = None

    def send(self, data: bytes) -> None:
        self.sock.settimeout(SEND_S)
        self.sock.sendall(data)

    def receive(self, until: float) -> bytes:
        """Read until a time. Raises `EOFError` if the connection is closed."""
        self.sock.settimeout(max(until - time.monotonic(), 0.001))
        try:
            data = self.sock.recv(1 << 18)
        except TimeoutError:
            return b""
        if not data:
            raise EOFError
        return data


class Sender:
    """Sends actions to ports, by name. `sent` counts bytes."""

    def __init__(self, ports: Mapping[str, Sequence[int]]) -> None:
        self._ports = ports
        self._links: dict[tuple[str, int, int], _Link] = {}
        self.sent = 0

    def send(self, action: Action) -> Answers:
        """Send an action, and return the answers that came in its time."""
        self.sent += action.size
        found = Answers()
        for number in range(action.copies):
            key = action.port, action.node, action.link + number
            try:
                link = self._link(key)
                found = self._call(link, action) if action.call else self._send(link, action)
            except (OSError, EOFError, H2Error):
                self._drop(key)
                found = Answers(is_lost=True)
            except FormatError:
                # No frame: the port speaks another protocol.
                self._drop(key)
        return found

    def _link(self, key: tuple[str, int, int]) -> _Link:
        if key not in self._links:
            ports = self._ports[key[0]]
            self._links[key] = _Link(ports[key[1] % len(ports)])
        return self._links[key]

    def _drop(self, key: tuple[str, int, int]) -> None:
        link = self._links.pop(key, None)
        if link is not None:
            link.sock.close()

    def close(self) -> None:
        for key in list(self._links):
            self._drop(key)

    def _send(self, link: _Link, action: Action) -> Answers:
        link.send(b"".join(data * times for data, times in action.pieces))
        until = time.monotonic() + action.wait_s
        frames: list[Frame] = []
        while len(frames) < action.answers and (data := link.receive(until)):
            if action.port not in _REMOTING:
                break
            link.data += data
            frames += self._frames(link)
        return Answers(frames)

    def _frames(self, link: _Link) -> Iterator[Frame]:
        """Take the whole frames received; the broker's own requests are no answers."""
        view, at = memoryview(link.data), 0
        while (found := next_frame(view, at, len(view), ANSWER_BYTES_MAX)) is not None:
            frame, at = found
            if frame.is_response:
                yield frame._replace(body=bytes(frame.body))
        link.data = bytes(view[at:])

    def _call(self, link: _Link, action: Action) -> Answers:
        http = link.http
        if http is None:
            http = link.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
            http.initiate_connection()
        stream = http.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/apache.rocketmq.v2.MessagingService/{action.call}",
            ":authority": "broker",
            "content-type": "application/grpc",
            "x-mq-client-id": "fuzz",
        }
        http.send_headers(stream, list(headers.items()))
        left = memoryview(b"".join(frame_message(data) * times for data, times in action.pieces))
        until = time.monotonic() + action.wait_s
        received, ended = b"", False
        while not ended:
            while left and (room := min(http.local_flow_control_window(stream), http.max_outbound_frame_size)) > 0:
                piece, left = left[:room], left[room:]
                http.send_data(stream, bytes(piece), end_stream=not left)
            link.send(http.data_to_send())
            data = link.receive(until)
            if not data:
                http.reset_stream(stream)
                break
            for event in http.receive_data(data):
                ended = ended or isinstance(event, _ENDS)
                if isinstance(event, events.DataReceived):
                    http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    received += event.data if event.stream_id == stream else b""
        link.send(http.data_to_send())
        return Answers(messages=list(_messages(action.call, received)))


def _messages(call: str, data: bytes) -> Iterator[Message]:
    while len(data) >= 5:
        size = int.from_bytes(data[1:5], "big")
        if len(data) >= 5 + size:
            yield decode(METHODS[call].response, data[5 : 5 + size])
        data = data[5 + size :]
