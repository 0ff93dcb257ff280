"""The gRPC calls of the captures: what clients asked, and what the original answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hpack import Decoder
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, HeadersFrame

from tests.golden.rocketmq.captures import Stream, streams

__all__ = ["GRPC_CAPTURES", "GRPC_PORT", "Call", "calls"]

GRPC_PORT: Final = 8081
GRPC_CAPTURES: Final = ("clients/node-grpc.pcap.xz", "clients/py-grpc.pcap.xz")
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass
class Call:
    """A call: its headers, the bytes of its messages, and the headers and trailers of the answer.

    It began at `began_us`, in microseconds.
    """

    headers: dict[str, str] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)
    answer_headers: dict[str, str] = field(default_factory=dict)
    answers: list[bytes] = field(default_factory=list)
    began_us: int = 0

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.headers[":path"].rpartition("/")[2]


def _frames(data: bytes) -> Iterator[tuple[Frame, int]]:
    """Yield each frame, and its end in the bytes."""
    view = memoryview(data)
    at = len(_PREFACE) if data.startswith(_PREFACE) else 0
    while at + 9 <= len(view):
        frame, length = Frame.parse_frame_header(view[at : at + 9])
        if at + 9 + length > len(view):
            return
        frame.parse_body(view[at + 9 : at + 9 + length])
        at += 9 + length
        yield frame, at


class _Side(NamedTuple):
    """One direction of a connection: the headers, with the trailers, the messages and the first time of each stream."""

    headers: dict[int, dict[str, str]]
    messages: dict[int, list[bytes]]
    began_us: dict[int, int]


def _read(stream: Stream) -> _Side:
    decoder, block = Decoder(), b""
    headers: dict[int, dict[str, str]] = {}
    data: dict[int, bytearray] = {}
    began_us: dict[int, int] = {}
    for frame, end in _frames(stream.data):
        began_us.setdefault(frame.stream_id, stream.time_of(end))
        if isinstance(frame, DataFrame):
            data.setdefault(frame.stream_id, bytearray()).extend(frame.data)
        elif isinstance(frame, HeadersFrame | ContinuationFrame):
            block += frame.data
            if "END_HEADERS" in frame.flags:
                known = headers.setdefault(frame.stream_id, {})
                known.update((_text(name), _text(value)) for name, value in decoder.decode(block))
                block = b""
    return _Side(headers, {number: list(_messages(bytes(each))) for number, each in data.items()}, began_us)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 5 <= len(data):
        assert data[at] == 0
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5])
        if end > len(data):
            return
        yield data[at + 5 : end]
        at = end


def calls(capture: str) -> list[Call]:
    """Every call of a capture, connection by connection."""
    found = []
    sides = [stream for stream in streams(capture) if GRPC_PORT in (stream.source, stream.target)]
    answers = {stream.target: stream for stream in sides if stream.source == GRPC_PORT}
    for stream in sides:
        if stream.target != GRPC_PORT:
            continue
        asked, answered = _read(stream), _read(answers[stream.source])
        found += [
            Call(
                asked.headers[number],
                asked.messages.get(number, []),
                answered.headers.get(number, {}),
                answered.messages.get(number, []),
                asked.began_us[number],
            )
            for number in asked.headers
        ]
    return found
