"""The content of messages that were received."""

from __future__ import annotations

import zlib

import pytest

from bmqctl.carrying.messages.received import of_topic
from bmqctl.client.rocketmq.message import Content
from formats.rocketmq.files.record import Magic, Record, body_crc
from formats.rocketmq.flags import SystemFlag

HOST = b"\x7f\0\0\1\0\0\0\0"


def content(body: bytes, *, crc: int | None = None, flags: int = 0) -> Content:
    found = body_crc(body) if crc is None else crc
    properties = b"UNIQ_KEY\x01ID\x02a\x01b\x02TAGS\x01t\x02"
    return Content(Record(Magic.V1, found, 0, 5, 9, 0, flags, 0, HOST, 0, HOST, 2, 0, body, "t", properties), "t", "b")


def test_properties_of_the_producer_are_told_apart_from_those_of_rocketmq() -> None:
    found = content(b"body")
    assert (found.payload, found.properties, found.tag, found.keys) == (b"body", {"a": "b"}, "t", [])
    assert (found.message_id, found.offset, found.attempt) == ("ID", 9, 3)


def test_a_payload_is_decompressed() -> None:
    assert content(zlib.compress(b"x" * 1000), flags=SystemFlag.COMPRESSED).payload == b"x" * 1000


@pytest.mark.parametrize("flags", [0, SystemFlag.COMPRESSED])
def test_a_payload_that_is_not_what_was_stored_is_refused(flags: int) -> None:
    with pytest.raises(ValueError, match="message ID: the checksum of the payload differs"):
        _ = content(zlib.compress(b"body"), crc=1, flags=flags).payload


@pytest.mark.parametrize(
    ("born_ms", "shown"),
    [
        (1_795_400_000_123, "2026-11-23T02:13:20.123000+00:00"),
        (-1, "1969-12-31T23:59:59.999000+00:00"),
        ((1 << 63) - 1, "9999-12-31T23:59:59.999999+00:00"),
        (-(1 << 63), "0001-01-01T00:00:00+00:00"),
    ],
)
def test_a_time_that_a_producer_made_up_hides_no_message(born_ms: int, shown: str) -> None:
    found = content(b"body")
    odd = Content(found._record._replace(born_ms=born_ms), "t", "b")
    assert odd.born_at.isoformat() == shown
    assert of_topic(odd).payload == b"body"
