"""All captured frames of remoting."""

from __future__ import annotations

from collections.abc import Iterator

from formats.rocketmq.remoting.frame import (
    Frame,
    next_frame,
)


def all_frames(data: bytes) -> Iterator[tuple[Frame, bytes]]:
    view, at = memoryview(data), 0
    while at < len(data):
        found = next_frame(view, at, len(data))
        assert found is not None
        frame, end = found
        yield frame, data[at:end]
        at = end
