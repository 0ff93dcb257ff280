from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.bmq.disk.files import (
    FILE_HEADER,
    HEADERS_SIZE_MAX,
    JOURNAL_FILE_HEADER,
    FileSet,
    FileType,
    StoreFileName,
    file_name,
    group_file_sets,
    initial_bytes,
    open_file,
    parse_file_name,
    recovery_set,
    rollover_finished,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY, derive_key
from formats.bmq.disk.ledger import LedgerFileName, ledger_file_name, parse_ledger_file_name
from formats.bmq.disk.padding import DWORD, WORD, padding, unpadded_size
from formats.errors import FormatError

CREATED = datetime(2027, 1, 1, 3, 4, 5, tzinfo=UTC)


def test_a_name_is_read_back() -> None:
    name = file_name(12, CREATED, FileType.JOURNAL)
    assert name == "bmq_12.20270101_030405.bmq_journal"
    assert parse_file_name(name) == StoreFileName(12, "20270101_030405", FileType.JOURNAL)
    ledger = ledger_file_name(CREATED, bytes.fromhex("EF2DB7CB99"))
    assert ledger == "bmq_csl_20270101_030405_EF2DB7CB99.bmq_csl"
    assert parse_ledger_file_name(ledger) == LedgerFileName("20270101_030405", bytes.fromhex("EF2DB7CB99"))


@pytest.mark.parametrize(
    "name",
    [
        "bmq_.20270101_030405.bmq_journal",
        "bmq_-1.20270101_030405.bmq_journal",
        "bmq_00.20270101_030405.bmq_journal",
        "bmq_1.20270101030405.bmq_journal",
        "bmq_1.20270101_030405.bmq_index",
        "bmq_1.20270101_030405.bmq_journal.gz",
        "bmq_csl_20270101_030405_EF2DB7CB99.bmq_csl",
        "dir/bmq_1.20270101_030405.bmq_journal",
        "bmq_1.20270101_030405.bmq_journal\n",
        "",
    ],
)
def test_other_names_are_not_store_files(name: str) -> None:
    assert parse_file_name(name) is None


def test_ledger_names_need_a_whole_log_id() -> None:
    assert parse_ledger_file_name("bmq_csl_20270101_030405_EF2DB7CB9.bmq_csl") is None
    assert parse_ledger_file_name("bmq_1.20270101_030405.bmq_journal") is None


def test_file_sets_group_by_partition_and_age() -> None:
    old, new = "20270101_030405", "20270102_000000"
    names = [
        f"bmq_10.{old}.bmq_data",
        f"bmq_2.{new}.bmq_journal",
        f"bmq_2.{old}.bmq_qlist",
        f"bmq_2.{old}.bmq_data",
        f"bmq_2.{old}.bmq_journal",
        "notes.txt",
    ]
    sets = group_file_sets(names)
    assert sets == [
        FileSet(2, old, f"bmq_2.{old}.bmq_data", f"bmq_2.{old}.bmq_journal", f"bmq_2.{old}.bmq_qlist"),
        FileSet(2, new, None, f"bmq_2.{new}.bmq_journal", None),
        FileSet(10, old, f"bmq_10.{old}.bmq_data", None, None),
    ]
    assert [files.complete for files in sets] == [True, False, False]


@pytest.mark.parametrize("file_type", [FileType.DATA, FileType.JOURNAL, FileType.QLIST])
def test_a_new_file_opens(file_type: FileType) -> None:
    start = initial_bytes(file_type, 7)
    opened = open_file(start)
    assert (opened.file_type, opened.file.partition_id, opened.first_record_offset) == (file_type, 7, len(start))


def test_no_undefined_file() -> None:
    with pytest.raises(ValueError, match="UNDEFINED"):
        initial_bytes(FileType.UNDEFINED, 0)


JOURNAL = initial_bytes(FileType.JOURNAL, 0)


@pytest.mark.parametrize(
    ("offset", "byte", "path"),
    [
        (0, 0x20, "FileHeader.magic"),
        (7, 0x20, "FileHeader.magic"),
        (8, 0x88, "FileHeader.protocol_version"),
        (8, 0x47, "FileHeader.header_words"),
        (8, 0x7F, "FileHeader.header_words"),
        (9, 0x84, "FileHeader.file_type"),
        (9, 0x80, "FileHeader.file_type"),
        (20, 0x80, "FileHeader.partition_id"),
        (32, 2, "JournalFileHeader.header_words"),
        (32, 4, "JournalFileHeader.header_words"),
        (33, 14, "JournalFileHeader.record_words"),
    ],
)
def test_wrong_headers_are_refused(offset: int, byte: int, path: str) -> None:
    damaged = bytearray(JOURNAL)
    damaged[offset] = byte
    with pytest.raises(FormatError) as caught:
        open_file(damaged, FileType.JOURNAL)
    assert caught.value.path == path


def test_a_file_of_another_type_is_named() -> None:
    with pytest.raises(FormatError, match="this is a DATA file, not a JOURNAL file"):
        open_file(initial_bytes(FileType.DATA, 0), FileType.JOURNAL)


def test_short_headers_are_refused() -> None:
    for file_type in (FileType.DATA, FileType.JOURNAL, FileType.QLIST):
        start = initial_bytes(file_type, 0)
        for size in range(len(start)):
            with pytest.raises(FormatError):
                open_file(start[:size])


def test_longer_headers_are_skipped() -> None:
    """A later writer may have added words to either header."""
    longer = bytearray(JOURNAL[: FILE_HEADER.size] + bytes(4) + JOURNAL[FILE_HEADER.size :] + bytes(8))
    longer[8] += 1
    longer[FILE_HEADER.size + 4] += 2
    assert open_file(longer).first_record_offset == FILE_HEADER.size + 4 + JOURNAL_FILE_HEADER.size + 8


@pytest.mark.parametrize("unit", [WORD, DWORD])
def test_padding_says_its_length(unit: int) -> None:
    for size in range(3 * unit):
        pad = padding(size, unit)
        assert 1 <= len(pad) <= unit
        assert (size + len(pad)) % unit == 0
        text = b"x" * size + pad
        assert unpadded_size(text, 0, len(text), unit, "text") == size


@pytest.mark.parametrize("text", [b"", b"abc\x00", b"abc\x05", b"\x02", b"abcd\xff"])
def test_impossible_padding_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpadded_size(text, 0, len(text), WORD, "text")


def test_keys_differ_by_salt_and_avoid_those_taken() -> None:
    first = derive_key("bmq://domain/queue", 1, ())
    assert len(first) == 5
    assert derive_key("bmq://domain/queue", 1, ()) == first
    assert derive_key("bmq://domain/queue", 2, ()) != first
    assert derive_key("bmq://domain/other", 1, ()) != first
    again = derive_key("bmq://domain/queue", 1, {first})
    assert again not in (first, NULL_KEY)


def test_the_default_app_key_is_that_of_the_reference() -> None:
    assert bytes.fromhex("3000000000") == DEFAULT_APP_KEY


def test_recovery_takes_the_newest_set_that_was_finished_or_the_oldest() -> None:
    sets = [FileSet(0, f"2026010{day}_000000", "d", "j", "q") for day in (1, 2, 3)]
    assert recovery_set(sets, lambda files: files is not sets[2]) is sets[1]
    assert recovery_set(sets, lambda files: True) is sets[2]
    assert recovery_set(sets, lambda files: False) is sets[0]
    assert recovery_set(sets[:1], lambda files: False) is sets[0]


def test_a_rollover_is_finished_once_the_header_names_its_sync_point() -> None:
    start = bytearray(initial_bytes(FileType.JOURNAL, 0))
    assert not rollover_finished(start)
    start[-1] = 11
    assert rollover_finished(start)


@pytest.mark.parametrize("file_type", [FileType.DATA, FileType.JOURNAL, FileType.QLIST])
def test_headers_of_any_size_that_they_can_declare_are_within_the_bound(file_type: FileType) -> None:
    written = initial_bytes(file_type, 3)
    file = FILE_HEADER.unpack(written)._replace(header_words=63)
    first = FILE_HEADER.pack(file).ljust(63 * WORD, b"\0")
    second = b"\xff" + written[FILE_HEADER.size + 1 :]
    opened = open_file((first + second).ljust(HEADERS_SIZE_MAX, b"\0"), file_type)
    assert opened.first_record_offset == HEADERS_SIZE_MAX
