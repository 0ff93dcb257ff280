"""Any bytes as the body of a PUSH event are refused, or are messages that can be written and read again.

So are their options, and the subscriptions in them. Messages hold views: together not longer than the body.
"""

from __future__ import annotations

from formats.bmq.codes import EventType
from formats.bmq.wire.options import SubQueueInfo, sub_queue_infos
from formats.bmq.wire.push import Push, append_push_with_options, iter_pushes
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[tuple[Push, list[SubQueueInfo]]]:
    return [(push, sub_queue_infos(push.options)) for push in iter_pushes(memoryview(data), 0, len(data))]


def verify(data: bytes, messages: list[tuple[Push, list[SubQueueInfo]]]) -> None:
    out = bytearray()
    for push, _ in messages:
        ids = (push.flags, push.compression, push.schema_id)
        append_push_with_options(out, push.queue_id, push.guid, push.options, push.data, *ids)
    assert decode(bytes(out)) == messages
    assert sum(len(push.options) + len(push.data) for push, _ in messages) <= len(data)


def seeds() -> list[bytes]:
    return bodies(EventType.PUSH)
