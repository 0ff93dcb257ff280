"""Every schema message that the reference broker and its clients put on the wire, read and written back.

Origin of the captures: BlazingMQ main a5b313cb, with its C++ client and the Python SDK 1.2.2.
"""

from __future__ import annotations

import struct
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.control import ber, jsonc
from formats.control.messages import ClientIdentity, ClusterMessage, ControlMessage, ElectorMessage, NegotiationMessage

GOLDEN = Path(__file__).parents[2] / "golden"

# Event types, bmqp::EventType.
CONTROL, CLUSTER_STATE, ELECTOR = 1, 6, 7

# `userAgent` (tag 12, empty) is newer than the Python SDK 1.2.2, which ends its identity before it.
USER_AGENT = b"\x8c\x00"


def events(capture: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each event of one TCP direction."""
    at = 0
    while at < len(capture):
        length, kind, header_words = struct.unpack_from(">IBB", capture, at)
        yield kind & 0x3F, capture[at + header_words * 4 : at + length]
        at += length


def records(payload: bytes) -> Iterator[bytes]:
    """The padded message of each ledger record, without the record's header and its CRC32-C."""
    at = 0
    while at < len(payload):
        header = (payload[at] >> 4) * 4
        (words,) = struct.unpack_from(">I", payload, at + 4)
        yield payload[at + header : at + header + words * 4 - 4]
        at += header + words * 4


def messages(archive: str) -> Iterator[tuple[type[Any], bytes]]:
    with tarfile.open(GOLDEN / f"{archive}.tar.xz") as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is None or not member.name.endswith(".bin"):
                continue
            for index, (kind, payload) in enumerate(events(file.read())):
                if kind == CONTROL:
                    yield (ControlMessage if index else NegotiationMessage), payload
                elif kind == ELECTOR:
                    yield ElectorMessage, payload
                elif kind == CLUSTER_STATE:
                    for record in records(payload):
                        yield ClusterMessage, record


def selected(message: Any) -> str:
    while hasattr(message, "choice"):
        message = message.choice
    return type(message).__name__


# Messages and kinds of message in each capture.
EXPECTED = {"wire-single": (100, 10), "wire-cluster": (426, 31), "wire-proxies": (1537, 34)}


@pytest.mark.parametrize("archive", EXPECTED)
def test_messages_are_written_back_byte_for_byte(archive: str) -> None:
    seen: Counter[str] = Counter()
    for cls, payload in messages(archive):
        message, end = ber.decode_from(cls, payload, 0)
        written = ber.encode(message)
        if isinstance(message, NegotiationMessage):
            identity = message.choice
            if isinstance(identity, ClientIdentity) and USER_AGENT not in payload and not identity.user_agent:
                written = written.replace(USER_AGENT, b"")
        assert written == payload[:end]
        assert payload[end:] == bytes([len(payload) - end]) * (len(payload) - end), "padding"
        assert ber.decode(cls, memoryview(payload)) == message
        assert jsonc.decode(cls, jsonc.encode(message)) == message
        seen[selected(message)] += 1
    assert (seen.total(), len(seen)) == EXPECTED[archive]
