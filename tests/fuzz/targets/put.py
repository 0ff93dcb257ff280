"""Any bytes as the body of a PUT event are refused, or are messages that can be written and read again.

So are their options. The contents of messages are views: together not longer than the body.
"""

from __future__ import annotations

from formats.bmq.codes import EventType
from formats.bmq.wire.options import Option, iter_options
from formats.bmq.wire.put import Put, append_put, correlation_id, iter_puts
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[tuple[Put, list[Option]]]:
    return [(put, list(iter_options(put.options))) for put in iter_puts(memoryview(data), 0, len(data))]


def verify(data: bytes, messages: list[tuple[Put, list[Option]]]) -> None:
    out = bytearray()
    for put, _ in messages:
        assert 0 <= correlation_id(put.guid) < 1 << 24
        ids = (put.flags, put.compression, put.schema_id)
        append_put(out, put.queue_id, put.guid, put.data, put.crc32c, *ids, put.options)
    assert [put for put, _ in decode(bytes(out))] == [put for put, _ in messages]
    assert sum(len(put.options) + len(put.data) for put, _ in messages) <= len(data)


def seeds() -> list[bytes]:
    """Golden ones, and one with options, which no current client puts."""
    out = bytearray()
    append_put(out, 1, bytes(16), b"data", 0, options=b"\x08\x00\x00\x02abc\x01")
    return [*bodies(EventType.PUT), bytes(out)]
