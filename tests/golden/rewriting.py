"""Events and files, read down to values and written again from these values.

Each function takes bytes apart as far as `formats` goes (application data down to properties and inflated payload,
control events to messages, replicated records to journal records and what lies beside them), builds the same thing
from what it read, and counts it in a `Tally`. A caller that gets its own bytes back knows that all of them were values.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from typing import Any

from crc32c import crc32c

from formats.bmq.codes import (
    CompressionAlgorithm,
    EventType,
    OptionType,
    PushFlag,
    PutFlag,
    StorageMessageType,
)
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    ClientIdentity,
    ClusterMessage,
    ControlMessage,
    ElectorMessage,
    NegotiationMessage,
)
from formats.bmq.disk import journal_packing
from formats.bmq.disk.data import DataHeaderFlags, data_record_size, parse_data_record, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    LAYOUTS,
    ConfirmRecord,
    DeletionRecord,
    MessageRecord,
    QueueOpRecord,
    Record,
    RecordType,
    decode_record,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, parse_ledger_record
from formats.bmq.disk.qlist import build_queue_record, parse_queue_record
from formats.bmq.padding import WORD
from formats.bmq.wire.ack import build_ack_event, iter_acks
from formats.bmq.wire.application_data import build_application_data, split_application_data
from formats.bmq.wire.confirm import build_confirm_event, iter_confirms
from formats.bmq.wire.event import (
    EVENT_HEADER,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    EncodingType,
    Frame,
    build_event,
    build_schema_event,
    schema_encoding,
    schema_message,
)
from formats.bmq.wire.options import iter_options, pack_sub_queue_ids, pack_sub_queue_infos, sub_queue_infos
from formats.bmq.wire.properties import decode_properties, encode_properties
from formats.bmq.wire.push import append_push, append_push_with_options, iter_pushes
from formats.bmq.wire.put import append_put, iter_puts
from formats.bmq.wire.receipt import build_receipt_event, parse_receipt
from formats.bmq.wire.reject import build_reject_event, iter_rejects
from formats.bmq.wire.storage import append_storage, iter_storage
from formats.schema import Buffer

__all__ = [
    "Tally",
    "application_data",
    "data_record",
    "event",
    "journal_record",
    "ledger_record",
    "queue_record",
    "schema_class",
    "selected",
]

Tally = Counter[str]

# `userAgent` (tag 12, empty) is newer than the Python SDK 1.2.2, which ends its identity before it.
USER_AGENT = b"\x8c\x00"


def application_data(data: memoryview, has_properties: bool, schema_id: int, compression: int, tally: Tally) -> bytes:
    """Properties and payload of a message, rebuilt from the list of properties and the payload before compression."""
    split = split_application_data(data, has_properties, schema_id, compression)
    properties = b""
    if has_properties:
        decoded = decode_properties(split.properties, schema_id)
        properties = encode_properties(decoded, schema_id)
        tally[f"properties, {'newer' if schema_id else 'older'} encoding"] += 1
        tally.update(f"property {each.type.name}" for each in decoded)
    built, made = build_application_data(properties, split.payload, schema_id, CompressionAlgorithm(compression))
    assert made == compression
    if made == CompressionAlgorithm.ZLIB:
        tally["compressed"] += 1
        # Another implementation of zlib makes another stream of the same data.
        if zlib.ZLIB_RUNTIME_VERSION.endswith("ng"):
            assert split_application_data(memoryview(built), has_properties, schema_id, compression) == split
            return bytes(data)
    return built


def journal_record(original: Buffer, tally: Tally) -> tuple[Record, bytes]:
    """A journal's record, and the bytes that a broker's builder makes of its fields."""
    record = decode_record(original)
    tally[f"record {RecordType(record.type).name}"] += 1
    assert LAYOUTS[record.type].pack(record) == original
    out = bytearray(JOURNAL_RECORD_SIZE)
    head = (record.primary_lease_id, record.sequence_number, record.timestamp)
    if isinstance(record, MessageRecord):
        where = (record.queue_key, record.message_offset_dwords)
        what = (record.guid, record.crc32c)
        journal_packing.pack_message(out, 0, *head, record.ref_count, record.compression, *where, *what)
    elif isinstance(record, ConfirmRecord):
        journal_packing.pack_confirm(out, 0, *head, record.reason, record.queue_key, record.app_key, record.guid)
    elif isinstance(record, DeletionRecord):
        journal_packing.pack_deletion(out, 0, *head, record.deletion_flag, record.queue_key, record.guid)
    elif isinstance(record, QueueOpRecord):
        offset = record.queue_uri_record_offset_words
        since = (record.start_primary_lease_id, record.start_sequence_number)
        keys = (record.queue_key, record.app_key)
        journal_packing.pack_queue_op(out, 0, *head, record.queue_op_type, *keys, offset, *since)
    else:
        point = (record.sync_point_type, record.sync_point_primary_lease_id, record.sync_point_sequence_number)
        ends = (record.data_file_offset_dwords, record.qlist_file_offset_words)
        journal_packing.pack_sync_point(out, 0, *head, *point, record.primary_node_id, *ends)
    return record, bytes(out)


def data_record(buffer: Buffer, offset: int, message: MessageRecord, tally: Tally) -> bytes:
    """The record of DATA that `message` of the journal speaks of."""
    record = parse_data_record(buffer, offset)
    header = record.header
    data = record.app_data(buffer)
    assert crc32c(data) == message.crc32c
    has_properties = bool(header.flags & DataHeaderFlags.MESSAGE_PROPERTIES)
    rebuilt = application_data(data, has_properties, header.schema_id, message.compression, tally)
    options = b"".join(struct.pack(">I", word) for (word,) in struct.iter_unpack(">I", record.options(buffer)))
    assert not options, "the reference stores no options"
    out = bytearray(data_record_size(len(options), len(rebuilt)))
    write_data_record(out, 0, rebuilt, options, header.flags, header.schema_id)
    return bytes(out)


def queue_record(buffer: Buffer, offset: int, tally: Tally) -> bytes:
    """A record of QLIST."""
    record = parse_queue_record(buffer, offset)
    tally["queue"] += 1
    tally["app of a queue"] += len(record.apps)
    return build_queue_record(record.uri, record.queue_key, record.apps)


def ledger_record(buffer: Buffer, offset: int, tally: Tally) -> bytes:
    """A record of the cluster-state ledger, down to its message."""
    record = parse_ledger_record(buffer, offset)
    head = record.header
    kind = LedgerRecordType(head.record_type)
    tally[f"ledger {kind.name}"] += 1
    body = schema(ClusterMessage, record.body, tally)
    return build_ledger_record(kind, head.elector_term, head.sequence_number, head.timestamp, body)


def schema(cls: type[Any], encoded: Buffer, tally: Tally) -> bytes:
    """A schema message in BER; its JSON, too, has all that it says."""
    message, end = ber.decode_from(cls, encoded, 0)
    assert end == len(encoded)
    tally[f"{cls.__name__} {selected(message)}"] += 1
    assert jsonc.decode(cls, jsonc.encode(message)) == message
    written = ber.encode(message)
    identity = message.choice
    if isinstance(identity, ClientIdentity) and not identity.user_agent and USER_AGENT not in bytes(encoded):
        tally["identity of an older client"] += 1
        return written.replace(USER_AGENT, b"")
    return written


def selected(message: Any) -> str:
    """The innermost alternative of a message."""
    while hasattr(message, "choice"):
        message = message.choice
    return type(message).__name__


def schema_class(event_type: int, first: bool) -> type[Any]:
    """The message that a CONTROL or ELECTOR event has; `first` says whether it opens its direction of a connection."""
    if event_type == EventType.ELECTOR:
        return ElectorMessage
    return NegotiationMessage if first else ControlMessage


def event(view: memoryview, at: int, frame: Frame, tally: Tally) -> bytes:
    """The event from `at` to `frame.end`; `at` is 0 for the first of a direction."""
    kind = EventType(frame.type)
    tally[kind.name] += 1
    header = EVENT_HEADER.unpack(view, at)
    assert EVENT_HEADER.pack(header) == view[at : frame.body]
    match kind:
        case EventType.CONTROL | EventType.ELECTOR:
            assert schema_encoding(frame.type_specific) is EncodingType.BER
            encoded = schema_message(view, frame.body, frame.end)
            return build_schema_event(schema(schema_class(kind, at == 0), encoded, tally), kind)
        case EventType.CLUSTER_STATE:
            return build_event(kind, _ledger_records(view, frame, tally))
        case EventType.PUT:
            return build_event(kind, _puts(view, frame, tally))
        case EventType.PUSH:
            return build_event(kind, _pushes(view, frame, tally))
        case EventType.ACK:
            acks = list(iter_acks(view, frame.body, frame.end))
            tally.update(f"ACK message with status {each.status}" for each in acks)
            return build_ack_event((each.status, each.correlation_id, each.guid, each.queue_id) for each in acks)
        case EventType.CONFIRM:
            confirms = list(iter_confirms(view, frame.body, frame.end))
            tally["CONFIRM message"] += len(confirms)
            return build_confirm_event(confirms)
        case EventType.REJECT:
            rejects = list(iter_rejects(view, frame.body, frame.end))
            tally["REJECT message"] += len(rejects)
            return build_reject_event(rejects)
        case EventType.STORAGE | EventType.PARTITION_SYNC:
            return build_event(kind, _storage(view, frame, tally))
        case EventType.REPLICATION_RECEIPT:
            receipt = parse_receipt(view, frame.body, frame.end)
            return build_receipt_event(receipt.partition_id, receipt.primary_lease_id, receipt.sequence_number)
        case EventType.HEARTBEAT_REQ | EventType.HEARTBEAT_RSP:
            assert frame.body == frame.end
            return HEARTBEAT_REQUEST if kind is EventType.HEARTBEAT_REQ else HEARTBEAT_RESPONSE
    raise AssertionError(f"no capture has {kind.name}")


def _ledger_records(view: memoryview, frame: Frame, tally: Tally) -> bytes:
    out = bytearray()
    while (at := frame.body + len(out)) < frame.end:
        out += ledger_record(view[: frame.end], at, tally)
    return bytes(out)


def _puts(view: memoryview, frame: Frame, tally: Tally) -> bytes:
    out = bytearray()
    for each in iter_puts(view, frame.body, frame.end):
        tally["PUT message"] += 1
        has_properties = bool(PutFlag(each.flags) & PutFlag.MESSAGE_PROPERTIES)
        data = application_data(each.data, has_properties, each.schema_id, each.compression, tally)
        assert not each.options, "no client puts options"
        ids = (each.flags, each.compression, each.schema_id)
        append_put(out, each.queue_id, each.guid, data, crc32c(data), *ids)
        assert each.crc32c == crc32c(data)
    return bytes(out)


def _pushes(view: memoryview, frame: Frame, tally: Tally) -> bytes:
    out = bytearray()
    for each in iter_pushes(view, frame.body, frame.end):
        flags = PushFlag(each.flags)
        tally["PUSH message"] += 1
        tally.update(f"PUSH flag {flag.name}" for flag in flags)
        data = b""
        if PushFlag.IMPLICIT_PAYLOAD not in flags:
            has_properties = PushFlag.MESSAGE_PROPERTIES in flags
            data = application_data(each.data, has_properties, each.schema_id, each.compression, tally)
        infos = sub_queue_infos(each.options)
        tally["PUSH subscription"] += len(infos)
        (option,) = iter_options(each.options)
        tally[f"option {OptionType(option.type).name}{' packed' * option.packed}"] += 1
        ids = (each.flags, each.compression, each.schema_id)
        if option.type == OptionType.SUB_QUEUE_IDS_OLD:
            (info,) = infos
            assert pack_sub_queue_ids([info.sub_queue_id]) == each.options
            append_push(out, each.queue_id, each.guid, data, info.sub_queue_id, *ids)
        else:
            append_push_with_options(out, each.queue_id, each.guid, pack_sub_queue_infos(infos), data, *ids)
    return bytes(out)


def _storage(view: memoryview, frame: Frame, tally: Tally) -> bytes:
    out = bytearray()
    for each in iter_storage(view, frame.body, frame.end):
        kind = StorageMessageType(each.message_type)
        tally[f"{EventType(frame.type).name} message {kind.name}"] += 1
        record, rebuilt = journal_record(each.record, tally)
        match kind:
            case StorageMessageType.DATA:
                assert isinstance(record, MessageRecord)
                data = data_record(each.data, 0, record, tally)
            case StorageMessageType.QLIST:
                assert isinstance(record, QueueOpRecord)
                data = queue_record(each.data, 0, tally)
            case _:
                data = b""
        append_storage(out, kind, each.partition_id, each.journal_offset_words, rebuilt, data, each.flags)
        assert len(out) % WORD == 0
    return bytes(out)
