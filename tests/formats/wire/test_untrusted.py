"""Whatever bytes come: a decoder ends, raises `FormatError` and nothing else, and gives no more than it was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.codes import CompressionAlgorithm, EventType
from formats.errors import FormatError
from formats.wire.ack import iter_acks
from formats.wire.application_data import split_application_data, to_older_application_data
from formats.wire.compression import decompress
from formats.wire.confirm import iter_confirms
from formats.wire.event import iter_frames, schema_encoding, schema_message
from formats.wire.options import iter_options, message_group_id, sub_queue_infos
from formats.wire.properties import decode_properties, to_older_encoding
from formats.wire.push import iter_pushes
from formats.wire.put import iter_puts
from formats.wire.receipt import parse_receipt
from formats.wire.recovery import append_chunk, iter_chunks
from formats.wire.reject import iter_rejects
from formats.wire.storage import iter_storage
from tests.golden.captures import streams

Reader = Callable[[memoryview], Iterable[Any]]
SIZE_MAX = 4096

# Whatever reads the body of an event, by the event's type.
BODIES: dict[EventType, Reader] = {
    EventType.CONTROL: lambda body: [schema_message(body, 0, len(body))],
    EventType.PUT: lambda body: iter_puts(body, 0, len(body)),
    EventType.CONFIRM: lambda body: iter_confirms(body, 0, len(body)),
    EventType.PUSH: lambda body: iter_pushes(body, 0, len(body)),
    EventType.ACK: lambda body: iter_acks(body, 0, len(body)),
    EventType.STORAGE: lambda body: iter_storage(body, 0, len(body)),
    EventType.RECOVERY: lambda body: iter_chunks(body, 0, len(body)),
    EventType.REJECT: lambda body: iter_rejects(body, 0, len(body)),
    EventType.REPLICATION_RECEIPT: lambda body: [parse_receipt(body, 0, len(body))],
}

# Whatever reads a part of a message, by the part.
PARTS: dict[str, Reader] = {
    "options": iter_options,
    "infos": sub_queue_infos,
    "group": lambda part: [message_group_id(part)],
    "older": lambda part: decode_properties(part, 0),
    "newer": lambda part: decode_properties(part, 1),
    "converted": lambda part: [to_older_encoding(part)],
}


@cache
def golden_bodies(event_type: EventType) -> list[bytes]:
    """Short bodies of real events; nobody sent RECOVERY, so that one is made here."""
    if event_type == EventType.RECOVERY:
        out = bytearray()
        for number in range(2):
            append_chunk(out, 2, 1, number, b"chunk..." * number, final=number == 1)  # type: ignore[arg-type]
        return [bytes(out)]
    found: dict[int, bytes] = {}
    for _, stream in streams("wire-proxies"):
        for frame in iter_frames(stream, 0, len(stream), 1 << 20):
            if frame.type == event_type and frame.end - frame.body < SIZE_MAX:
                found.setdefault(frame.end - frame.body, stream[frame.body : frame.end])
    return sorted(found.values(), key=len)[:8]


@cache
def golden_parts() -> dict[str, list[bytes]]:
    """Options and properties of real messages."""
    parts: dict[str, set[bytes]] = defaultdict(set)
    for body in golden_bodies(EventType.PUSH):
        for push in iter_pushes(memoryview(body), 0, len(body)):
            parts["options"].add(bytes(push.options))
    for _, stream in streams("wire-single"):
        for frame in iter_frames(stream, 0, len(stream), 1 << 20):
            if frame.type == EventType.PUT:
                for put in iter_puts(memoryview(stream), frame.body, frame.end):
                    if put.schema_id and len(put.data) < SIZE_MAX:
                        parts["properties"].add(bytes(put.data))
    return {name: sorted(found)[:20] for name, found in parts.items()}


@cache
def golden_heads() -> list[bytes]:
    """How some connections begin."""
    return [stream[:1000] for _, stream in streams("wire-proxies")][:4]


@st.composite
def damaged(draw: st.DrawFn, sources: list[bytes]) -> bytes:
    """A real structure with some bytes changed, cut or left over; or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=100))
    data = bytearray(draw(st.sampled_from(sources)))
    # Headers come first: that is where damage tells.
    near = st.integers(0, min(len(data), 80) - 1)
    for at, value in draw(st.lists(st.tuples(near, st.integers(0, 255)), max_size=3)):
        data[at] = value
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data) + draw(st.binary(max_size=4))


def held(value: Any) -> int:
    """Bytes that a decoded message views."""
    if isinstance(value, memoryview):
        return len(value)
    return sum(map(held, value)) if isinstance(value, tuple) else 0


def read(reader: Reader, data: bytes) -> None:
    try:
        values = list(reader(memoryview(data)))
    except FormatError:
        return
    assert held(tuple(values)) <= len(data)
    assert len(values) <= max(1, len(data))


@pytest.mark.parametrize("event_type", BODIES, ids=lambda each: each.name)
@given(data=st.data())
def test_bodies(event_type: EventType, data: st.DataObject) -> None:
    read(BODIES[event_type], data.draw(damaged(golden_bodies(event_type))))


@pytest.mark.parametrize("part", PARTS)
@given(data=st.data())
def test_parts(part: str, data: st.DataObject) -> None:
    sources = golden_parts()["options" if part in ("options", "infos", "group") else "properties"]
    read(PARTS[part], data.draw(damaged(sources)))


@given(data=st.data(), has_properties=st.booleans(), schema_id=st.integers(0, 2), compression=st.integers(0, 2))
def test_application_data(data: st.DataObject, has_properties: bool, schema_id: int, compression: int) -> None:
    source = memoryview(data.draw(damaged(golden_parts()["properties"])))
    try:
        split = split_application_data(source, has_properties, schema_id, compression, SIZE_MAX)
    except FormatError:
        return
    assert len(split.properties) + len(split.payload) <= len(source) + SIZE_MAX


@given(data=st.data(), compression=st.sampled_from(CompressionAlgorithm))
def test_conversion(data: st.DataObject, compression: int) -> None:
    source = memoryview(data.draw(damaged(golden_parts()["properties"])))
    try:
        older = to_older_application_data(source, compression, SIZE_MAX)
    except FormatError:
        return
    assert len(older) <= len(source) + SIZE_MAX


@given(st.binary(max_size=200))
def test_streams_of_zlib(data: bytes) -> None:
    for prefix in (b"", b"x\x9c"):
        try:
            assert len(decompress(prefix + data, CompressionAlgorithm.ZLIB, SIZE_MAX)) <= SIZE_MAX
        except FormatError:
            continue


@given(st.data())
def test_frames(data: st.DataObject) -> None:
    source = data.draw(damaged(golden_heads()))
    at = 0
    try:
        for frame in iter_frames(source, 0, len(source), SIZE_MAX):
            assert at < frame.body <= frame.end <= len(source)
            schema_encoding(frame.type_specific)
            at = frame.end
    except FormatError:
        return
