"""A broker that is not ready for the posts of another: it refuses all that are on their way when the other hears it."""

from __future__ import annotations

from formats.bmq.codes import AckStatus
from formats.bmq.padding import WORD
from formats.bmq.wire.ack import build_ack_event
from formats.bmq.wire.event import EventType, build_event, iter_frames
from formats.bmq.wire.put import PUT_HEADER

__all__ = ["NotReady"]

EVENT_BYTES_MAX = 1 << 30


class NotReady:
    """The posts that go one way over one link, and the refusals of some. While `is_armed`, another refusal may begin.

    The answers are `late_us` microseconds late.
    """

    def __init__(self, late_us: int = 0) -> None:
        self.late_us = late_us
        self.is_armed = True
        self._begun = 0
        self._refusals: dict[int, int] = {}  # by queue id, each with a number of its own

    @property
    def is_over(self) -> bool:
        """Return whether all posts pass from now on."""
        return not (self.is_armed or self._refusals)

    def part(self, data: bytes) -> tuple[bytes, bytes, dict[int, int]]:
        """Take out of whole events the posts that are refused.

        Returns what is left, the answer to the others, if any, and the refusals that end when this has arrived.
        """
        view = memoryview(data)
        passes = bytearray()
        rows: list[tuple[int, int, bytes, int]] = []
        at = 0
        for frame in iter_frames(view, 0, len(data), EVENT_BYTES_MAX):
            if frame.type == EventType.PUT:
                posts = bytearray()
                start = frame.body
                while start < frame.end:
                    put = PUT_HEADER.unpack(data, start)
                    end = start + put.message_words * WORD
                    if self._refuses(put.queue_id):
                        rows.append((int(AckStatus.NOT_READY), 0, put.guid, put.queue_id))
                    else:
                        posts += data[start:end]
                    start = end
                if posts:
                    passes += build_event(EventType.PUT, posts)
            else:
                passes += data[at : frame.end]
            at = frame.end
        answered = {queue_id: self._refusals[queue_id] for *_, queue_id in rows}
        return bytes(passes), build_ack_event(rows) if rows else b"", answered

    def _refuses(self, queue_id: int) -> bool:
        if queue_id not in self._refusals and self.is_armed:
            self._begun += 1
            self._refusals[queue_id] = self._begun
        return queue_id in self._refusals

    def end(self, answered: dict[int, int]) -> None:
        """The sender knows of refusals: what it sends from now on is taken."""
        for queue_id, number in answered.items():
            if self._refusals.get(queue_id) == number:
                del self._refusals[queue_id]
