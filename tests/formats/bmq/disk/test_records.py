"""Records that are not what they claim to be: decoders raise FormatError, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.bmq.disk import journal, journal_packing
from formats.bmq.disk.data import DATA_HEADER, DataHeader, data_record_size, parse_data_record, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes, open_file
from formats.bmq.disk.journal import (
    ConfirmReason,
    DeletionRecordFlag,
    JournalOpRecord,
    MessageRecord,
    QueueOpRecord,
    QueueOpType,
    RecordType,
    SyncPointType,
    decode_record,
)
from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.disk.ledger import (
    LedgerRecordType,
    build_ledger_record,
    initial_ledger_bytes,
    open_ledger,
    parse_ledger_record,
)
from formats.bmq.disk.qlist import AppInfo, build_queue_record, parse_queue_record
from formats.bmq.stores.recover import iter_data, iter_journal, iter_ledger, iter_qlist, journal_extent
from formats.errors import FormatError
from tests.families import examples
from tests.fuzz.seal import seal_ledger_record
from tests.golden.rewriting import Tally, journal_record

QUEUE_KEY = b"queue"
APP_KEY = b"appky"
GUID = bytes(range(16))
PURGED_FROM = (3, 1 << 40)


def a_journal(size: int = 0) -> bytearray:
    """A journal with a record of each kind, the last of them a message, and `size` bytes of nothing after it."""
    out = bytearray(initial_bytes(FileType.JOURNAL, 0))
    at = len(out)
    out += bytes(6 * JOURNAL_RECORD_SIZE)
    step = JOURNAL_RECORD_SIZE
    journal_packing.pack_sync_point(out, at, 1, 1, 1000, SyncPointType.REGULAR, 1, 1, 0, 5, 9)
    journal_packing.pack_queue_op(
        out, at + step, 1, 2, 1001, QueueOpType.CREATION, QUEUE_KEY, queue_uri_record_offset_words=9
    )
    journal_packing.pack_message(out, at + 2 * step, 1, 3, 1002, 70_000, 1, QUEUE_KEY, 5, GUID, 0xDEADBEEF)
    journal_packing.pack_confirm(out, at + 3 * step, 1, 4, 1003, 1, QUEUE_KEY, APP_KEY, GUID)
    journal_packing.pack_deletion(out, at + 4 * step, 1, 5, 1004, 2, QUEUE_KEY, GUID)
    journal_packing.pack_queue_op(
        out, at + 5 * step, 1, 6, 1005, QueueOpType.PURGE, QUEUE_KEY, APP_KEY, 0, *PURGED_FROM
    )
    return out + bytes(size)


def test_builders_fill_every_field() -> None:
    records = [record for _, record in iter_journal(a_journal())]
    assert [record.sequence_number for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record.timestamp for record in records] == [1000, 1001, 1002, 1003, 1004, 1005]
    message, purge = records[2], records[5]
    assert isinstance(message, MessageRecord)
    assert (message.ref_count, message.compression, message.crc32c) == (70_000, 1, 0xDEADBEEF)
    assert isinstance(purge, QueueOpRecord)
    assert (purge.start_primary_lease_id, purge.start_sequence_number) == PURGED_FROM
    assert purge.app_key == APP_KEY


head = st.tuples(st.integers(1, (1 << 32) - 1), st.integers(1, (1 << 48) - 1), st.integers(0, (1 << 64) - 1))
key = st.binary(min_size=KEY_SIZE, max_size=KEY_SIZE)
guid = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, (1 << 32) - 1)
flags = st.integers(0, (1 << 12) - 1)
# Of every sub-type half of the values are known ones; the others must be carried as well.
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
RECORDS: dict[str, tuple[Callable[..., None], st.SearchStrategy[tuple[Any, ...]]]] = {
    "message": (
        journal_packing.pack_message,
        st.tuples(st.integers(0, journal.REF_COUNT_MAX), st.integers(0, 7), key, u32, guid, u32),
    ),
    "confirm": (journal_packing.pack_confirm, st.tuples(st.sampled_from(ConfirmReason) | flags, key, key, guid)),
    "deletion": (journal_packing.pack_deletion, st.tuples(st.sampled_from(DeletionRecordFlag) | flags, key, guid)),
    "queue op": (
        journal_packing.pack_queue_op,
        st.tuples(st.sampled_from(QueueOpType) | i32, key, key, u32, u32, st.integers(0, (1 << 64) - 1)),
    ),
    "sync point": (
        journal_packing.pack_sync_point,
        st.tuples(
            st.sampled_from(SyncPointType) | st.integers(0, 255), u32, st.integers(0, (1 << 64) - 1), i32, u32, u32
        ),
    ),
}


@pytest.mark.parametrize("name", RECORDS)
@given(data=st.data())
def test_records_of_every_type_and_sub_type_come_back(name: str, data: st.DataObject) -> None:
    pack, fields = RECORDS[name]
    out = bytearray(JOURNAL_RECORD_SIZE)
    numbers, values = data.draw(head), data.draw(fields)
    pack(out, 0, *numbers, *values)
    record, rebuilt = journal_record(out, Tally())
    assert rebuilt == out
    assert (record.primary_lease_id, record.sequence_number, record.timestamp) == numbers
    held = [*record, record.ref_count] if isinstance(record, MessageRecord) else [*record]
    assert set(values) <= set(held)


def test_sequence_numbers_use_48_bits() -> None:
    out = bytearray(JOURNAL_RECORD_SIZE)
    journal_packing.pack_deletion(out, 0, 0xFFFF_FFFF, (1 << 48) - 1, (1 << 64) - 1, 0, QUEUE_KEY, GUID)
    record = decode_record(out)
    assert (record.primary_lease_id, record.sequence_number, record.timestamp) == (
        0xFFFF_FFFF,
        (1 << 48) - 1,
        (1 << 64) - 1,
    )


def test_an_unknown_journal_op_is_kept() -> None:
    out = bytearray(JOURNAL_RECORD_SIZE)
    journal_packing.pack_sync_point(out, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0)
    out[27] = 77
    record = decode_record(out)
    assert isinstance(record, JournalOpRecord)
    assert record.journal_op_type == 77
    assert journal.JOURNAL_OP_RECORD.pack(record) == out


@pytest.mark.parametrize(
    ("offset", "value", "path"),
    [
        (0, 0x00, "RecordHeader.type"),
        (0, 0x60, "RecordHeader.type"),
        (0, 0xF0, "RecordHeader.type"),
        (7, 0, "RecordHeader.sequence_number"),
        (11, 0, "RecordHeader.primary_lease_id"),
        (59, 0x64, "MessageRecord.magic"),
    ],
)
def test_damaged_records_are_refused(offset: int, value: int, path: str) -> None:
    out = bytearray(JOURNAL_RECORD_SIZE)
    journal_packing.pack_message(out, 0, 1, 1, 1, 1, 0, QUEUE_KEY, 5, GUID, 0)
    out[offset] = value
    with pytest.raises(FormatError) as caught:
        decode_record(out)
    assert caught.value.path == path


@pytest.mark.parametrize("offset", [-1, -60, 1, 60, 1000])
def test_offsets_outside_are_refused(offset: int) -> None:
    out = bytearray(JOURNAL_RECORD_SIZE)
    journal_packing.pack_message(out, 0, 1, 1, 1, 1, 0, QUEUE_KEY, 5, GUID, 0)
    with pytest.raises(FormatError):
        decode_record(out, offset)


@pytest.mark.parametrize("tail", [0, 1, 59, 60, 61, 600])
def test_a_journal_ends_where_the_zeros_begin(tail: int) -> None:
    written = a_journal()
    extent = journal_extent(a_journal(tail))
    assert (extent.end, extent.record_count, extent.last_sync_point_offset) == (len(written), 6, 44)


def test_a_torn_last_record_is_not_part_of_the_journal() -> None:
    whole = a_journal()
    for cut in range(1, JOURNAL_RECORD_SIZE):
        torn = whole[:-cut]
        assert journal_extent(torn).record_count == 5
        assert journal_extent(torn + bytes(cut)).record_count == 5


def test_damage_before_the_last_sync_point_does_not_end_the_journal() -> None:
    """The reference looks for the last sync point from the back, so the walk must meet the damage, not stop before."""
    damaged = a_journal()
    journal_packing.pack_sync_point(
        damaged, 44 + 5 * JOURNAL_RECORD_SIZE, 1, 6, 1005, SyncPointType.REGULAR, 1, 6, 0, 5, 9
    )
    damaged[44 + 3 * JOURNAL_RECORD_SIZE - 1] ^= 1
    assert journal_extent(damaged).record_count == 6
    walk = iter_journal(damaged)
    assert [next(walk)[0] for _ in range(2)] == [44, 104]
    with pytest.raises(FormatError) as caught:
        next(walk)
    assert caught.value.offset == 44 + 3 * JOURNAL_RECORD_SIZE - 4


def test_an_empty_journal_has_no_records() -> None:
    for tail in (0, 30, 60, 6000):
        extent = journal_extent(initial_bytes(FileType.JOURNAL, 0) + bytes(tail))
        assert (extent.record_count, extent.end, extent.last_sync_point_offset) == (0, 44, None)


def test_a_journal_longer_than_a_chunk() -> None:
    count = 70_000
    out = bytearray(initial_bytes(FileType.JOURNAL, 0)) + bytes(count * JOURNAL_RECORD_SIZE)
    journal_packing.pack_sync_point(out, 44, 1, 1, 1, SyncPointType.REGULAR, 1, 1, 0, 5, 9)
    for index in range(1, count):
        journal_packing.pack_deletion(out, 44 + index * JOURNAL_RECORD_SIZE, 1, index + 1, 1, 0, QUEUE_KEY, GUID)
    extent = journal_extent(out + bytes(100_000 * JOURNAL_RECORD_SIZE))
    assert (extent.record_count, extent.last_sync_point_offset) == (count, 44)


def test_scan_does_not_reach_beyond_the_buffer() -> None:
    with pytest.raises(FormatError):
        journal.scan(a_journal(), 44, 7)
    with pytest.raises(FormatError):
        journal.scan(a_journal(), -1, 1)


@pytest.mark.parametrize("options", [b"", b"word", b"eight by"])
def test_data_records_are_padded_to_double_words(options: bytes) -> None:
    for size in range(40):
        app_data = bytes(range(1, size + 1))
        expected = data_record_size(len(options), size)
        out = bytearray(8 + expected)
        assert write_data_record(out, 8, app_data, options, 1, 0x1234) == 8 + expected
        record = parse_data_record(out, 8)
        assert record.end % 8 == 0
        assert record.end == len(out)
        assert record.options(out) == options
        assert record.app_data(out) == app_data
        assert record.crc32c(out) == crc32c(app_data)
        assert (record.header.flags, record.header.schema_id) == (1, 0x1234)


def data_bytes(header_words: int, message_words: int, options_words: int, last: int, size: int) -> bytes:
    header = DATA_HEADER.pack(DataHeader(header_words, message_words, options_words, 0, 0, bytes(2)))
    return header + bytes(size - DATA_HEADER.size - 1) + bytes([last])


@pytest.mark.parametrize(
    ("header_words", "message_words", "options_words", "last", "path"),
    [
        (2, 6, 0, 1, "DataHeader.header_words"),
        (3, 8, 0, 1, "DataHeader.message_words"),
        (3, 5, 0, 1, "DataHeader.message_words"),
        (3, 0, 0, 1, "DataHeader.options_words"),
        (3, 6, 3, 1, "DataHeader.options_words"),
        (3, 6, 0xFFFFFF, 1, "DataHeader.options_words"),
        (3, 6, 0, 0, "DataHeader.padding"),
        (3, 6, 0, 9, "DataHeader.padding"),
        (3, 6, 2, 5, "DataHeader.padding"),
    ],
)
def test_wrong_data_headers_are_refused(
    header_words: int, message_words: int, options_words: int, last: int, path: str
) -> None:
    with pytest.raises(FormatError) as caught:
        parse_data_record(data_bytes(header_words, message_words, options_words, last, 24), 0)
    assert caught.value.path == path


def test_data_records_start_at_double_words() -> None:
    with pytest.raises(FormatError):
        parse_data_record(bytes(64), 4)


APPS = [AppInfo("foo", b"12345"), AppInfo("", b"abcde"), AppInfo("four", b"ABCDE"), AppInfo("größe", b"vwxyz")]


@pytest.mark.parametrize("apps", [[], APPS[:1], APPS])
def test_queue_records(apps: list[AppInfo]) -> None:
    built = build_queue_record("bmq://domain/queue", QUEUE_KEY, apps)
    record = parse_queue_record(b"1234" + built, 4)
    assert record == ("bmq://domain/queue", QUEUE_KEY, tuple(apps), 4, 4 + len(built))


def test_wrong_queue_records_are_refused() -> None:
    built = build_queue_record("bmq://domain/queue", QUEUE_KEY, APPS)
    for offset, value, path in [
        (3, 3, "QueueRecordHeader.queue_record_words"),
        (3, 5, "QueueRecordHeader.num_app_ids"),
        (1, 200, "QueueRecord.uri"),
        (1, 0, "QueueRecord.uri"),
        (4, 4, "QueueRecordHeader.header_words"),
        (4, 200, "QueueRecordHeader.header_words"),
        (7, 200, "QueueRecordHeader.queue_record_words"),
        (7, 20, "QueueRecord.magic"),
        (20, 0xFF, "QueueRecord.uri"),
        (len(built) - 1, 0, "QueueRecord.magic"),
    ]:
        damaged = bytearray(built)
        damaged[offset] = value
        with pytest.raises(FormatError) as caught:
            parse_queue_record(damaged, 0)
        assert caught.value.path == path, (offset, value)


def test_ledger_records() -> None:
    for size in range(12):
        built = build_ledger_record(LedgerRecordType.UPDATE, 1 << 60, 1 << 61, 1 << 62, b"x" * size)
        record = parse_ledger_record(b"12345678" + built, 8)
        header = record.header
        assert (header.elector_term, header.sequence_number, header.timestamp) == (1 << 60, 1 << 61, 1 << 62)
        assert (record.body, record.end) == (b"x" * size, 8 + len(built))


def test_the_length_of_a_ledger_record_has_28_bits() -> None:
    record = bytearray(build_ledger_record(LedgerRecordType.ACK, 1, 2, 3, b"body"))
    record[4] |= 0xF0
    seal_ledger_record(record, 0)
    parsed = parse_ledger_record(record, 0)
    assert (parsed.body, parsed.end) == (b"body", len(record))
    assert (parsed.header.reserved_bits, parsed.header.leader_advisory_words) == (0xF, (len(record) - 32) // 4)


def test_every_flipped_bit_of_a_ledger_record_is_noticed() -> None:
    built = build_ledger_record(LedgerRecordType.COMMIT, 1, 2, 3, b"body")
    for bit in range(len(built) * 8):
        damaged = bytearray(built)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            parse_ledger_record(damaged, 0)


@pytest.mark.parametrize(("offset", "value"), [(0, 0x82), (0, 0x41), (0, 0x43)])
def test_wrong_ledger_headers_are_refused(offset: int, value: int) -> None:
    damaged = bytearray(initial_ledger_bytes(b"logid"))
    damaged[offset] = value
    with pytest.raises(FormatError):
        open_ledger(damaged)


def test_a_ledger_without_log_id_is_refused() -> None:
    with pytest.raises(FormatError, match="is null"):
        open_ledger(initial_ledger_bytes(bytes(5)))


def a_file(file_type: FileType) -> bytes:
    start = initial_bytes(file_type, 0)
    if file_type is FileType.JOURNAL:
        return bytes(a_journal())
    if file_type is FileType.QLIST:
        return start + build_queue_record("bmq://domain/queue", QUEUE_KEY, APPS)
    out = bytearray(start) + bytes(data_record_size(4, 21) + data_record_size(0, 3))
    end = write_data_record(out, len(start), b"x" * 21, b"opts")
    assert write_data_record(out, end, b"abc") == len(out)
    return bytes(out)


LEDGER = initial_ledger_bytes(b"logid") + build_ledger_record(LedgerRecordType.ACK, 1, 2, 3, b"body")

every_walk = pytest.mark.parametrize(
    ("content", "walk", "count"),
    [
        pytest.param(a_file(FileType.JOURNAL), iter_journal, 6, id="journal"),
        pytest.param(a_file(FileType.DATA), iter_data, 2, id="data"),
        pytest.param(a_file(FileType.QLIST), iter_qlist, 1, id="qlist"),
        pytest.param(LEDGER, iter_ledger, 1, id="ledger"),
    ],
)


@every_walk
@pytest.mark.parametrize("tail", [0, 3, 4, 60, 1000])
def test_walks_end_with_what_is_written(
    content: bytes, walk: Callable[[bytes], Iterator[Any]], count: int, tail: int
) -> None:
    assert len(list(walk(content + bytes(tail)))) == count


@every_walk
def test_walks_over_damaged_files_end(content: bytes, walk: Callable[[bytes], Iterator[Any]], count: int) -> None:
    """A damaged file gives some records, then its end or a FormatError."""
    dice = random.Random(7)
    for _ in range(1500):
        damaged = bytearray(content[: dice.randrange(len(content) + 1)])
        for _ in range(dice.randrange(4) if damaged else 0):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        offset = 0
        try:
            assert len(list(walk(bytes(damaged)))) <= count
        except FormatError as error:
            offset = error.offset
        assert 0 <= offset <= len(damaged)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=300), st.sampled_from([0, 4, 8, 60]))
def test_decoders_of_noise_raise_format_errors_only(noise: bytes, offset: int) -> None:
    decoders: list[Callable[[bytes, int], object]] = [
        decode_record,
        parse_data_record,
        parse_queue_record,
        parse_ledger_record,
        lambda data, _: open_file(data),
        lambda data, _: open_ledger(data),
        lambda data, _: list(iter_data(initial_bytes(FileType.DATA, 0) + data)),
        lambda data, _: list(iter_qlist(initial_bytes(FileType.QLIST, 0) + data)),
        lambda data, _: list(iter_journal(initial_bytes(FileType.JOURNAL, 0) + data)),
        lambda data, _: list(iter_ledger(initial_ledger_bytes(b"logid") + data)),
    ]
    for decode in decoders:
        try:
            decode(noise, offset)
        except FormatError:
            continue


def test_record_types_cover_the_layouts() -> None:
    assert set(journal.LAYOUTS) == set(RecordType) - {RecordType.UNDEFINED}
