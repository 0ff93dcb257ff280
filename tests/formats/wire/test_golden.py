"""Every event that the reference broker and its clients put on the wire, read and written back byte for byte.

Origin of the captures: BlazingMQ main a5b313cb, with its C++ client and the Python SDK 1.2.2.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from formats.codes import CompressionAlgorithm, EventType, OptionType, PutFlag
from formats.disk.ledger import LedgerRecordType, build_ledger_record, parse_ledger_record
from formats.guid import parse_guid
from formats.wire.ack import build_ack_event, iter_acks
from formats.wire.application_data import build_application_data, split_application_data, to_older_application_data
from formats.wire.confirm import build_confirm_event, iter_confirms
from formats.wire.event import (
    EVENT_HEADER,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    Frame,
    build_event,
    build_schema_event,
    iter_frames,
    schema_encoding,
    schema_message,
)
from formats.wire.options import iter_options, pack_sub_queue_ids, pack_sub_queue_infos, sub_queue_infos
from formats.wire.properties import decode_properties, encode_properties
from formats.wire.push import append_push, append_push_with_options, iter_pushes
from formats.wire.put import Put, append_put, iter_puts
from formats.wire.receipt import build_receipt_event, parse_receipt
from formats.wire.reject import build_reject_event, iter_rejects
from formats.wire.storage import append_storage, iter_storage
from tests.golden.archives import truth
from tests.golden.captures import CAPTURES, streams

LENGTH_MAX = 1 << 24


def put(view: memoryview, frame: Frame) -> bytes:
    out = bytearray()
    for each in iter_puts(view, frame.body, frame.end):
        append_put(
            out,
            each.queue_id,
            each.guid,
            each.data,
            crc32c(each.data),
            each.flags,
            each.compression,
            each.schema_id,
            each.options,
        )
    return build_event(EventType.PUT, out)


def push(view: memoryview, frame: Frame) -> bytes:
    out = bytearray()
    for each in iter_pushes(view, frame.body, frame.end):
        infos = sub_queue_infos(each.options)
        (option,) = iter_options(each.options)
        if option.type == OptionType.SUB_QUEUE_IDS_OLD:
            assert pack_sub_queue_ids([info.sub_queue_id for info in infos]) == each.options
            (info,) = infos
            append_push(
                out,
                each.queue_id,
                each.guid,
                each.data,
                info.sub_queue_id,
                each.flags,
                each.compression,
                each.schema_id,
            )
        else:
            append_push_with_options(
                out,
                each.queue_id,
                each.guid,
                pack_sub_queue_infos(infos),
                each.data,
                each.flags,
                each.compression,
                each.schema_id,
            )
    return build_event(EventType.PUSH, out)


def ack(view: memoryview, frame: Frame) -> bytes:
    acks = iter_acks(view, frame.body, frame.end)
    return build_ack_event((each.status, each.correlation_id, each.guid, each.queue_id) for each in acks)


def storage(view: memoryview, frame: Frame) -> bytes:
    out = bytearray()
    for each in iter_storage(view, frame.body, frame.end):
        append_storage(
            out,
            each.message_type,
            each.partition_id,
            each.journal_offset_words,
            each.record,
            each.data,
            each.flags,
        )
    return build_event(EventType(frame.type), out)


def receipt(view: memoryview, frame: Frame) -> bytes:
    each = parse_receipt(view, frame.body, frame.end)
    return build_receipt_event(each.partition_id, each.primary_lease_id, each.sequence_number)


def schema(view: memoryview, frame: Frame) -> bytes:
    message = bytes(schema_message(view, frame.body, frame.end))
    return build_schema_event(message, EventType(frame.type), schema_encoding(frame.type_specific))


def ledger_record(view: memoryview, frame: Frame) -> bytes:
    record = parse_ledger_record(view[: frame.end], frame.body)
    head = record.header
    kind = LedgerRecordType(head.record_type)
    body = build_ledger_record(kind, head.elector_term, head.sequence_number, head.timestamp, record.body)
    return build_event(EventType.CLUSTER_STATE, body)


REWRITE: dict[EventType, Callable[[memoryview, Frame], bytes]] = {
    EventType.CONTROL: schema,
    EventType.PUT: put,
    EventType.CONFIRM: lambda view, frame: build_confirm_event(iter_confirms(view, frame.body, frame.end)),
    EventType.PUSH: push,
    EventType.ACK: ack,
    EventType.CLUSTER_STATE: ledger_record,
    EventType.ELECTOR: schema,
    EventType.STORAGE: storage,
    EventType.PARTITION_SYNC: storage,
    EventType.HEARTBEAT_REQ: lambda view, frame: HEARTBEAT_REQUEST,
    EventType.HEARTBEAT_RSP: lambda view, frame: HEARTBEAT_RESPONSE,
    EventType.REJECT: lambda view, frame: build_reject_event(iter_rejects(view, frame.body, frame.end)),
    EventType.REPLICATION_RECEIPT: receipt,
}

# How many events of each type there are.
EXPECTED: dict[str, dict[str, int]] = {
    "wire-single": {
        "CONTROL": 100,
        "PUT": 295,
        "CONFIRM": 200,
        "PUSH": 9,
        "ACK": 59,
    },
    "wire-cluster": {
        "CONTROL": 264,
        "PUT": 20532,
        "CONFIRM": 360,
        "PUSH": 64,
        "ACK": 20123,
        "CLUSTER_STATE": 51,
        "ELECTOR": 111,
        "STORAGE": 20381,
        "PARTITION_SYNC": 3,
        "HEARTBEAT_REQ": 39,
        "HEARTBEAT_RSP": 39,
        "REPLICATION_RECEIPT": 20130,
    },
    "wire-proxies": {
        "CONTROL": 1299,
        "PUT": 107,
        "CONFIRM": 83,
        "PUSH": 128,
        "ACK": 107,
        "CLUSTER_STATE": 117,
        "ELECTOR": 121,
        "STORAGE": 566,
        "PARTITION_SYNC": 20,
        "HEARTBEAT_REQ": 106,
        "HEARTBEAT_RSP": 106,
        "REJECT": 6,
        "REPLICATION_RECEIPT": 150,
    },
}


@pytest.mark.parametrize("capture", CAPTURES)
def test_events_are_written_back_byte_for_byte(capture: str) -> None:
    seen: Counter[str] = Counter()
    for name, stream in streams(capture):
        view = memoryview(stream)
        at = 0
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            event = stream[at : frame.end]
            assert EVENT_HEADER.pack(EVENT_HEADER.unpack(view, at)) == event[: frame.body - at]
            assert REWRITE[EventType(frame.type)](view, frame) == event, f"{name} at {at}"
            seen[EventType(frame.type).name] += 1
            at = frame.end
        assert at == len(stream)
    assert seen == EXPECTED[capture]


def puts(capture: str) -> list[Put]:
    return [
        each
        for _, stream in streams(capture)
        for frame in iter_frames(stream, 0, len(stream), LENGTH_MAX)
        if frame.type == EventType.PUT
        for each in iter_puts(memoryview(stream), frame.body, frame.end)
    ]


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
