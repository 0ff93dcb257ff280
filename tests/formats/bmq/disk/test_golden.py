"""Every record that the reference wrote decodes to what its own tool prints, and encodes back to the same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages_cluster import ClusterMessage
from formats.bmq.disk import journal
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import (
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
from formats.bmq.disk.keys import KEY_SIZE, NULL_KEY
from formats.bmq.disk.ledger import LedgerRecordType, initial_ledger_bytes, open_ledger, parse_ledger_file_name
from formats.bmq.padding import DWORD, WORD
from formats.bmq.stores.recover import iter_data, iter_journal, iter_ledger, iter_qlist, journal_extent
from tests.golden.archives import STORES, ledger_records, storage_records, tallies, truth
from tests.golden.rewriting import Tally, data_record, journal_record, ledger_record, queue_record

if TYPE_CHECKING:
    from tests.formats.bmq.conftest import Store

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


@pytest.mark.slow
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


@every_store
def test_layouts_agree_on_golden_records(store: Stores, name: str) -> None:
    """struct and numpy read the same values from every record, construct from every hundredth of a kind."""
    buffer = store(name).file(FileType.JOURNAL)
    extent = journal_extent(buffer)
    scanned = journal.scan(buffer, extent.first_record_offset, extent.record_count)
    for kind, layout in LAYOUTS.items():
        records, indexes = journal.select(scanned, RecordType(kind))
        offsets = [extent.first_record_offset + index * JOURNAL_RECORD_SIZE for index in indexes.tolist()]
        decoded = [decode_record(buffer, offset) for offset in offsets]
        assert decoded
        columns = [layout.column(records, field).tolist() for field in layout.cls._fields]
        assert list(zip(*columns, strict=True)) == decoded
        for offset, record in list(zip(offsets, decoded, strict=True))[::100]:
            assert layout.parse_readable(buffer[offset : offset + JOURNAL_RECORD_SIZE]) == record._asdict()


def assert_zeros(buffer: memoryview, start: int) -> None:
    """Assert that the rest of a preallocated file, from `start` on, has no byte but zero."""
    for at in range(start, len(buffer), 1 << 24):
        assert not np.frombuffer(buffer[at : at + (1 << 24)], np.uint8).any()


@pytest.mark.slow
@every_store
def test_every_byte_of_a_store_is_a_value_and_is_written_back(store: Stores, name: str) -> None:
    """Headers, records down to properties and messages, padding; the tally says how many there are of everything."""
    tally = Tally()
    files = {kind: store(name).file(kind) for kind in (FileType.JOURNAL, FileType.DATA, FileType.QLIST)}
    rebuilt = {kind: bytearray(initial_bytes(kind, 0)) for kind in files}
    messages: list[MessageRecord] = []
    queues: list[int] = []
    for offset, _ in iter_journal(files[FileType.JOURNAL]):
        record, written = journal_record(files[FileType.JOURNAL][offset : offset + JOURNAL_RECORD_SIZE], tally)
        rebuilt[FileType.JOURNAL] += written
        if isinstance(record, MessageRecord):
            messages.append(record)
        elif isinstance(record, QueueOpRecord) and record.queue_op_type == QueueOpType.CREATION:
            queues.append(record.queue_uri_record_offset_words * WORD)
    for message in messages:
        offset = message.message_offset_dwords * DWORD
        assert offset == len(rebuilt[FileType.DATA])
        rebuilt[FileType.DATA] += data_record(files[FileType.DATA], offset, message, tally)
    for offset in queues:
        assert offset == len(rebuilt[FileType.QLIST])
        rebuilt[FileType.QLIST] += queue_record(files[FileType.QLIST], offset, tally)
    ledger = store(name).ledger()
    header, first = open_ledger(ledger)
    rebuilt_ledger = bytearray(initial_ledger_bytes(header.file_key))
    assert len(rebuilt_ledger) == first
    for each in iter_ledger(ledger):
        rebuilt_ledger += ledger_record(ledger, each.offset, tally)
    for buffer, made in [*((files[kind], rebuilt[kind]) for kind in files), (ledger, rebuilt_ledger)]:
        assert made == buffer[: len(made)]
        assert_zeros(buffer, len(made))
    # The walkers come to the same records as the journal's references do.
    assert len(list(iter_data(files[FileType.DATA]))) == len(messages)
    assert len(list(iter_qlist(files[FileType.QLIST]))) == len(queues)
    assert tally == tallies()[name]


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


def with_base64_keys(value: Any) -> Any:
    """The other way round: the JSON that the reference's codec makes, from what the tool prints of it."""
    if isinstance(value, dict):
        return {
            name: base64.b64encode(bytes.fromhex(item)).decode()
            if name in ("key", "appKey") and len(item) == 2 * KEY_SIZE
            else with_base64_keys(item)
            for name, item in value.items()
        }
    return [with_base64_keys(item) for item in value] if isinstance(value, list) else value


@every_store
def test_messages_in_json_are_those_in_ber(store: Stores, name: str) -> None:
    for record, printed in zip(iter_ledger(store(name).ledger()), ledger_records(name), strict=True):
        written = json.dumps(with_base64_keys(printed["Record"])).encode()
        assert ber.encode(jsonc.decode(ClusterMessage, written)) == record.body


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
