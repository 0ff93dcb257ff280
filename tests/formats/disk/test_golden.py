"""Every record that the reference wrote decodes to what its own tool prints, and encodes back to the same bytes."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from formats.control import ber, jsonc
from formats.control.messages_cluster import ClusterMessage
from formats.disk import journal
from formats.disk.data import data_record_size, parse_data_record, write_data_record
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes, open_file
from formats.disk.journal import (
    LAYOUTS,
    ConfirmRecord,
    DeletionRecord,
    DeletionRecordFlag,
    JournalOpRecord,
    JournalOpType,
    MessageRecord,
    QueueOpRecord,
    QueueOpType,
    Record,
    RecordType,
    SyncPointType,
    decode_record,
)
from formats.disk.keys import KEY_SIZE, NULL_KEY
from formats.disk.ledger import (
    LedgerRecordType,
    build_ledger_record,
    initial_ledger_bytes,
    open_ledger,
    parse_ledger_file_name,
)
from formats.disk.qlist import build_queue_record
from formats.disk.recover import iter_data, iter_journal, iter_ledger, iter_qlist, journal_extent
from tests.golden.archives import STORES, ledger_records, storage_records, truth

if TYPE_CHECKING:
    from tests.formats.disk.conftest import Store

Stores = Callable[[str], "Store"]
every_store = pytest.mark.parametrize("name", STORES)


def hex_of(key: bytes) -> str:
    return key.hex().upper()


def tool_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d%b%Y_%H:%M:%S.000000").upper()


def as_tool_prints(record: Record, uris: dict[bytes, str], app_ids: dict[bytes, str]) -> dict[str, str]:
    """The record's own fields in the words of the reference's storage tool."""
    if isinstance(record, JournalOpRecord):
        return {
            "JournalOpType": JournalOpType(record.journal_op_type).name,
            "SyncPointType": SyncPointType(record.sync_point_type).name,
            "SyncPtPrimaryLeaseId": str(record.sync_point_primary_lease_id),
            "SyncPtSequenceNumber": str(record.sync_point_sequence_number),
            "PrimaryNodeId": str(record.primary_node_id),
            "DataFileOffsetDwords": str(record.data_file_offset_dwords),
        }
    queue = {"QueueKey": hex_of(record.queue_key), "QueueUri": uris[record.queue_key]}
    if isinstance(record, MessageRecord):
        return queue | {
            "FileKey": hex_of(record.file_key),
            "RefCount": str(record.ref_count),
            "MsgOffsetDwords": str(record.message_offset_dwords),
            "GUID": hex_of(record.guid),
            "Crc32c": str(record.crc32c),
        }
    if isinstance(record, ConfirmRecord):
        app = {"AppKey": hex_of(record.app_key), "AppId": app_ids[record.app_key]}
        return queue | app | {"GUID": hex_of(record.guid)}
    if isinstance(record, DeletionRecord):
        return queue | {
            "DeletionFlag": DeletionRecordFlag(record.deletion_flag).name or "NONE",
            "GUID": hex_of(record.guid),
        }
    assert isinstance(record, QueueOpRecord)
    assert record.app_key == NULL_KEY
    return queue | {
        "AppKey": hex_of(record.app_key),
        "AppId": "** NULL **",
        "QueueOpType": QueueOpType(record.queue_op_type).name,
        "QLIST OffsetWords": str(record.queue_uri_record_offset_words),
    }


@every_store
def test_journal_reads_as_the_reference_reads_it(store: Stores, name: str) -> None:
    qlist = list(iter_qlist(store(name).file(FileType.QLIST)))
    uris = {queue.queue_key: queue.uri for queue in qlist}
    app_ids = {app.app_key: app.app_id for queue in qlist for app in queue.apps}
    expected = storage_records(name)
    read = list(iter_journal(store(name).file(FileType.JOURNAL)))
    assert len(read) == len(expected)
    for index, ((offset, record), printed) in enumerate(zip(read, expected, strict=True)):
        common = {
            "RecordType": RecordType(record.type).name,
            "Index": str(index),
            "Offset": str(offset),
            "PrimaryLeaseId": str(record.primary_lease_id),
            "SequenceNumber": str(record.sequence_number),
            "Timestamp": tool_time(record.timestamp),
            "Epoch": str(record.timestamp),
        }
        assert common | as_tool_prints(record, uris, app_ids) == printed


def repack(record: Record) -> bytearray:
    """The record written by the builder that a broker uses."""
    out = bytearray(JOURNAL_RECORD_SIZE)
    head = (record.primary_lease_id, record.sequence_number, record.timestamp)
    if isinstance(record, MessageRecord):
        journal.pack_message(
            out,
            0,
            *head,
            record.ref_count,
            record.compression,
            record.queue_key,
            record.message_offset_dwords,
            record.guid,
            record.crc32c,
        )
    elif isinstance(record, ConfirmRecord):
        journal.pack_confirm(out, 0, *head, record.reason, record.queue_key, record.app_key, record.guid)
    elif isinstance(record, DeletionRecord):
        journal.pack_deletion(out, 0, *head, record.deletion_flag, record.queue_key, record.guid)
    elif isinstance(record, QueueOpRecord):
        offset = record.queue_uri_record_offset_words
        journal.pack_queue_op(out, 0, *head, record.queue_op_type, record.queue_key, record.app_key, offset)
    else:
        journal.pack_sync_point(
            out,
            0,
            *head,
            record.sync_point_type,
            record.sync_point_primary_lease_id,
            record.sync_point_sequence_number,
            record.primary_node_id,
            record.data_file_offset_dwords,
            record.qlist_file_offset_words,
        )
    return out


@every_store
def test_journal_records_encode_to_the_bytes_they_came_from(store: Stores, name: str) -> None:
    buffer = store(name).file(FileType.JOURNAL)
    kinds: Counter[int] = Counter()
    for offset, record in iter_journal(buffer):
        original = buffer[offset : offset + JOURNAL_RECORD_SIZE]
        assert LAYOUTS[record.type].pack(record) == original
        assert repack(record) == original
        kinds[record.type] += 1
    assert set(kinds) == set(LAYOUTS)


@every_store
def test_layouts_agree_on_golden_records(store: Stores, name: str) -> None:
    """struct, construct and numpy read the same values from one record of each kind."""
    buffer = store(name).file(FileType.JOURNAL)
    extent = journal_extent(buffer)
    scanned = journal.scan(buffer, extent.first_record_offset, extent.record_count)
    for kind, layout in LAYOUTS.items():
        records, indexes = journal.select(scanned, RecordType(kind))
        offset = extent.first_record_offset + int(indexes[-1]) * JOURNAL_RECORD_SIZE
        decoded = decode_record(buffer, offset)
        readable = layout.parse_readable(buffer[offset : offset + JOURNAL_RECORD_SIZE])
        for field, value in decoded._asdict().items():
            from_numpy = layout.column(records, field)[-1]
            assert (from_numpy.tobytes() if isinstance(value, bytes) else int(from_numpy)) == value
            assert readable[field] == value


@every_store
def test_headers_are_those_of_a_new_file(store: Stores, name: str) -> None:
    for file_type in (FileType.DATA, FileType.JOURNAL, FileType.QLIST):
        buffer = store(name).file(file_type)
        opened = open_file(buffer, file_type)
        assert opened.file.partition_id == 0
        assert initial_bytes(file_type, 0) == buffer[: opened.first_record_offset]


@every_store
def test_every_payload_has_the_checksum_of_its_journal_record(store: Stores, name: str) -> None:
    data = store(name).file(FileType.DATA)
    referenced = []
    for _, record in iter_journal(store(name).file(FileType.JOURNAL)):
        if isinstance(record, MessageRecord):
            payload = parse_data_record(data, record.message_offset_dwords * 8)
            assert payload.crc32c(data) == record.crc32c
            referenced.append(payload)
    assert list(iter_data(data)) == referenced


@every_store
def test_data_records_encode_to_the_bytes_they_came_from(store: Stores, name: str) -> None:
    buffer = store(name).file(FileType.DATA)
    for record in iter_data(buffer):
        size = data_record_size(record.app_data_offset - record.options_offset, record.app_data_size)
        out = bytearray(size)
        header = record.header
        end = write_data_record(out, 0, record.app_data(buffer), record.options(buffer), header.flags, header.schema_id)
        assert end == size == record.end - record.offset
        assert out == buffer[record.offset : record.end]


@every_store
def test_queue_records_encode_to_the_bytes_they_came_from(store: Stores, name: str) -> None:
    buffer = store(name).file(FileType.QLIST)
    records = list(iter_qlist(buffer))
    assert records
    for record in records:
        assert build_queue_record(record.uri, record.queue_key, record.apps) == buffer[record.offset : record.end]


def with_hex_keys(value: Any) -> Any:
    """The JSON of a message with its keys in hex, as the storage tool prints them, instead of base64.

    The tool leaves those keys in base64 that have a slash in it, which its JSON escapes.
    """
    if isinstance(value, dict):
        return {
            name: hex_of(base64.b64decode(item))
            if name in ("key", "appKey") and "/" not in item
            else with_hex_keys(item)
            for name, item in value.items()
        }
    return [with_hex_keys(item) for item in value] if isinstance(value, list) else value


@every_store
def test_ledger_reads_as_the_reference_reads_it(store: Stores, name: str) -> None:
    buffer = store(name).ledger()
    header, first = open_ledger(buffer)
    assert initial_ledger_bytes(header.file_key) == buffer[:first]
    file_name = parse_ledger_file_name(store(name).path(".bmq_csl").name)
    assert file_name is not None
    assert file_name.log_id == header.file_key
    assert str(file_name) == store(name).path(".bmq_csl").name
    for record, printed in zip(iter_ledger(buffer), ledger_records(name), strict=True):
        assert printed == {
            "RecordType": LedgerRecordType(record.header.record_type).name,
            "Offset": str(record.offset),
            "LogId": hex_of(header.file_key),
            "ElectorTerm": str(record.header.elector_term),
            "SequenceNumber": str(record.header.sequence_number),
            "HeaderWords": str(record.header.header_words),
            "LeaderAdvisoryWords": str(record.header.leader_advisory_words),
            "Timestamp": tool_time(record.header.timestamp),
            "Epoch": str(record.header.timestamp),
            "Record": with_hex_keys(jsonc.to_json(ber.decode(ClusterMessage, record.body))),
        }


@every_store
def test_ledger_records_encode_to_the_bytes_they_came_from(store: Stores, name: str) -> None:
    buffer = store(name).ledger()
    for record in iter_ledger(buffer):
        header = record.header
        body = ber.encode(ber.decode(ClusterMessage, record.body))
        built = build_ledger_record(
            LedgerRecordType(header.record_type), header.elector_term, header.sequence_number, header.timestamp, body
        )
        assert built == buffer[record.offset : record.end]


@pytest.mark.parametrize(("name", "posted"), [("single-crash", "single"), ("cluster-node0", "cluster")])
def test_stored_payloads_are_what_the_client_posted(store: Stores, name: str, posted: str) -> None:
    """Payloads without properties and compression lie in DATA as they were posted."""
    data = store(name).file(FileType.DATA)
    messages = {
        (hashlib.sha256(record.app_data(data)).hexdigest(), record.app_data_size)
        for record in iter_data(data)
        if not record.header.flags
    }
    plain = [m for m in truth(posted) if not m["properties"] and not m["zlib"] and "mem.broadcast" not in m["queue"]]
    assert len(plain) > 50
    assert {(m["sha256"], m["size"]) for m in plain} <= messages


def test_keys_are_five_bytes(store: Stores) -> None:
    for queue in iter_qlist(store("single-clean").file(FileType.QLIST)):
        assert len(queue.queue_key) == KEY_SIZE
        assert all(len(app.app_key) == KEY_SIZE for app in queue.apps)
