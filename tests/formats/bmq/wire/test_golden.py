"""Every event that the reference broker and its clients put on the wire, read and written back byte for byte.

Origin of the captures: BlazingMQ main a5b313cb, with its C++ client and the Python SDK 1.2.2.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import pytest

from formats.bmq.codes import CompressionAlgorithm, EventType, PutFlag
from formats.bmq.guid import parse_guid
from formats.bmq.wire.application_data import build_application_data, split_application_data, to_older_application_data
from formats.bmq.wire.event import iter_frames
from formats.bmq.wire.properties import decode_properties, encode_properties
from formats.bmq.wire.put import Put, iter_puts
from tests.golden.archives import tallies, truth
from tests.golden.captures import CAPTURES, streams
from tests.golden.rewriting import Tally, event

LENGTH_MAX = 1 << 24


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES)
def test_every_byte_of_a_capture_is_a_value_and_is_written_back(capture: str) -> None:
    """The tally says how many there are of everything, so that nothing is passed over."""
    tally = Tally()
    for name, stream in streams(capture):
        view = memoryview(stream)
        at = 0
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            assert event(view, at, frame, tally) == view[at : frame.end], f"{name} at {at}"
            at = frame.end
        assert at == len(stream)
    assert tally == tallies()[capture]


def test_the_captures_have_all_event_types_but_two() -> None:
    """The recordings lack two types: today's brokers send no RECOVERY, and no recorded client authenticated."""
    seen = {kind.name for kind in EventType for capture in CAPTURES if kind.name in tallies()[capture]}
    assert {kind.name for kind in EventType} - seen == {"UNDEFINED", "RECOVERY", "AUTHENTICATION"}


def puts(capture: str) -> list[Put]:
    return [
        each
        for _, stream in streams(capture)
        for frame in iter_frames(stream, 0, len(stream), LENGTH_MAX)
        if frame.type == EventType.PUT
        for each in iter_puts(memoryview(stream), frame.body, frame.end)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("capture", "posted"), [("wire-single", "single"), ("wire-cluster", "cluster")])
def test_posted_messages_hold_what_the_client_posted(capture: str, posted: str) -> None:
    by_guid = {parse_guid(each["guid"].upper()): each for each in truth(posted)}
    seen: set[bytes] = set()
    for each in puts(capture):
        if each.guid not in by_guid:
            continue
        said: dict[str, Any] = by_guid[each.guid]
        has_properties = bool(each.flags & PutFlag.MESSAGE_PROPERTIES)
        data = split_application_data(each.data, has_properties, each.schema_id, each.compression)
        assert hashlib.sha256(data.payload).hexdigest() == said["sha256"]
        decoded = decode_properties(data.properties, each.schema_id) if has_properties else []
        values = {item.name: item.value.hex() if isinstance(item.value, bytes) else item.value for item in decoded}
        assert values == said["properties"]
        seen.add(each.guid)
    assert seen == set(by_guid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "with_properties", "compressed"), [("wire-single", 185, 9), ("wire-cluster", 366, 18)]
)
def test_properties_and_compression_are_made_as_the_reference_makes_them(
    capture: str, with_properties: int, compressed: int
) -> None:
    counts = [0, 0]
    for each in puts(capture):
        has_properties = bool(each.flags & PutFlag.MESSAGE_PROPERTIES)
        data = split_application_data(each.data, has_properties, each.schema_id, each.compression)
        properties = b""
        if has_properties:
            counts[0] += 1
            decoded = decode_properties(data.properties, each.schema_id)
            properties = encode_properties(decoded, each.schema_id)
            assert properties == data.properties
            older = memoryview(to_older_application_data(each.data, each.compression))
            assert decode_properties(older, 0) == decoded
            assert older[len(properties) :] == data.payload
        wanted = CompressionAlgorithm(each.compression)
        built, made = build_application_data(properties, data.payload, each.schema_id, wanted)
        assert made == wanted
        if made == CompressionAlgorithm.ZLIB:
            counts[1] += 1
            # Another implementation of zlib makes another stream of the same data.
            if zlib.ZLIB_RUNTIME_VERSION.endswith("ng"):
                continue
        assert built == each.data
    assert counts == [with_properties, compressed]
