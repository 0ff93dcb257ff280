"""Any bytes as a frame of the remoting protocol are refused, or written back as a frame that says the same."""

from __future__ import annotations

from formats.rocketmq.remoting.frame import Frame, HeaderEncoding, encode_frame, next_frame
from formats.rocketmq.remoting.headers.table import HEADERS
from tests.golden.rocketmq.captures import streams

__all__ = ["decode", "seeds", "verify"]

CAPTURES = ("pcap/00-broker-registration.pcap.xz", "pcap/05-ordered.pcap.xz", "pcap/13-broadcast.pcap.xz")
SIZE_MAX = 1024


def decode(data: bytes) -> Frame | None:
    found = next_frame(memoryview(data), 0, len(data))
    if found is None:
        return None
    frame, _ = found
    codec = HEADERS[frame.code].request if frame.code in HEADERS else None
    if codec is not None and not frame.is_response:
        codec.read(frame.ext_fields)
    return frame


def verify(data: bytes, frame: Frame | None) -> None:
    if frame is None:
        return
    try:
        written = encode_frame(frame)
    except ValueError:
        # JSON can express half of a surrogate pair, which cannot be written.
        return
    assert next_frame(memoryview(written), 0, len(written)) == (frame, len(written))


def seeds() -> list[bytes]:
    found: dict[int, bytes] = {}
    for capture in CAPTURES:
        for stream in streams(capture):
            view, at = memoryview(stream.data), 0
            while (read := next_frame(view, at, len(view))) is not None:
                frame, end = read
                if end - at <= SIZE_MAX:
                    found.setdefault(end - at, stream.data[at:end])
                    if frame.code < 1 << 15:
                        binary = encode_frame(frame._replace(encoding=HeaderEncoding.BINARY))
                        found.setdefault(len(binary), binary)
                at = end
    return list(found.values())
