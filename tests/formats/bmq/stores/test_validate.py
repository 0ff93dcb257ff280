"""Stores with one thing wrong: the fault is found, named and placed; healthy stores have none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest
from crc32c import crc32c

from formats.bmq.disk import journal_packing
from formats.bmq.disk.data import write_data_record
from formats.bmq.disk.files import FILE_HEADER, JOURNAL_RECORD_SIZE, FileType
from formats.bmq.disk.journal import QueueOpType, SyncPointType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, initial_ledger_bytes
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.stores.faults import CATALOGUE, Severity
from formats.bmq.stores.recover import iter_ledger
from formats.bmq.stores.validate import FileView, validate_file, validate_file_set, validate_ledger
from tests.formats.bmq.stores.validate_rig import (
    DATA_NAME,
    JOURNAL_NAME,
    OTHER,
    QLIST_NAME,
    QUEUE,
    SECOND,
    Writer,
    guid,
    healthy,
)
from tests.golden.archives import STORES

if TYPE_CHECKING:
    from tests.formats.bmq.conftest import Store

Stores = Callable[[str], "Store"]

FIRST_RECORD, FIRST_PAYLOAD, FIRST_QUEUE = 44, 40, 36


def offset_of(index: int) -> int:
    return FIRST_RECORD + index * JOURNAL_RECORD_SIZE


@pytest.mark.parametrize("name", STORES)
def test_stores_of_the_reference_have_no_faults(store: Stores, name: str) -> None:
    files = (FileType.JOURNAL, FileType.DATA, FileType.QLIST)
    views = [FileView(store(name).path(kind.extension).name, store(name).file(kind)) for kind in files]
    assert list(validate_file_set(*views)) == []
    for view, kind in zip(views, files, strict=True):
        assert list(validate_file(view, kind)) == []
    ledger = store(name).path(".bmq_csl").name
    assert list(validate_ledger(FileView(ledger, store(name).ledger()))) == []


def test_a_healthy_store_has_no_faults() -> None:
    assert healthy().faults() == []
    journal_only, data, qlist = healthy().views()
    assert list(validate_file_set(journal_only)) == []
    assert list(validate_file_set(journal_only, data)) == []
    assert list(validate_file_set(journal_only, None, qlist)) == []


def test_preallocated_files_have_no_faults() -> None:
    writer = healthy()
    for file in (writer.journal, writer.data, writer.qlist):
        file += bytes(10_000)
    assert writer.faults() == []


def test_queues_come_and_go() -> None:
    writer = Writer().sync_point().create().post(1).delete_queue().create(OTHER).post(1, OTHER).create().post(2)
    assert writer.purge().faults() == []


def test_a_new_primary_starts_over_and_settles_its_predecessors_sync_point() -> None:
    writer = Writer().sync_point().create().post(1)
    writer.lease, writer.number = 2, 0
    head = writer.next()
    ends = (len(writer.data) // 8, len(writer.qlist) // 4)
    journal_packing.pack_sync_point(*head, SyncPointType.REGULAR, 1, 3, 0, *ends)
    assert writer.sync_point().post(2).faults() == []


def rolled_over(*, header: bool = True) -> Writer:
    """Write the result of a rollover: records still needed, a sync point, the header that points to it."""
    writer = Writer()
    writer.number = 4
    writer.create()
    writer.number = 40
    writer.post(1).post(2)
    writer.lease, writer.number = 2, 9
    writer.confirm(2)
    writer.number = 99
    if header:
        writer.journal[FILE_HEADER.size + 4 : FILE_HEADER.size + 12] = (offset_of(4) // 4).to_bytes(8, "big")
    return writer.sync_point()


def test_rolled_over_records_may_skip_sequence_numbers() -> None:
    assert rolled_over().post(3).faults() == []


def test_records_after_a_rollover_may_not_skip() -> None:
    writer = rolled_over()
    writer.number += 1
    (found,) = writer.post(3).faults()
    assert (found.code, found.offset) == ("sequence-gap", offset_of(5))


def test_an_unfinished_rollover_is_a_warning() -> None:
    (found,) = rolled_over(header=False).faults()
    assert (found.code, found.severity, found.offset) == ("rollover-unfinished", Severity.WARNING, FIRST_RECORD)


def test_a_rollover_offset_that_points_elsewhere() -> None:
    writer = rolled_over()
    writer.journal[FILE_HEADER.size + 11] += 15
    assert writer.codes() == ["rollover-offset"]


Damage = Callable[[Writer], object]


def put(file: str, offset: int, *values: int) -> Damage:
    def damage(writer: Writer) -> None:
        getattr(writer, file)[offset : offset + len(values)] = bytes(values)

    return damage


def cut(file: str, size: int) -> Damage:
    def damage(writer: Writer) -> None:
        del getattr(writer, file)[-size:]

    return damage


@pytest.mark.parametrize(
    ("damage", "code", "file", "offset"),
    [
        pytest.param(put("journal", 0, 0), "header", JOURNAL_NAME, 0, id="journal header"),
        pytest.param(put("data", 0, 0), "header", DATA_NAME, 0, id="data header"),
        pytest.param(put("qlist", 0, 0), "header", QLIST_NAME, 0, id="qlist header"),
        pytest.param(put("journal", 23, 1), "partition-mismatch", JOURNAL_NAME, 20, id="journal partition"),
        pytest.param(put("data", 23, 1), "partition-mismatch", DATA_NAME, 20, id="data partition"),
        pytest.param(put("qlist", 23, 1), "partition-mismatch", QLIST_NAME, 20, id="qlist partition"),
        pytest.param(put("journal", offset_of(4) + 57, 0), "record-magic", JOURNAL_NAME, offset_of(4), id="magic"),
        pytest.param(put("journal", offset_of(4), 0x60), "record-type", JOURNAL_NAME, offset_of(4), id="type"),
        pytest.param(put("journal", offset_of(4), 0x00), "record-type", JOURNAL_NAME, offset_of(4), id="type 0"),
        pytest.param(put("journal", offset_of(4) + 7, 0), "record-numbers", JOURNAL_NAME, offset_of(4), id="numbers"),
        pytest.param(put("journal", offset_of(9) + 59, 1), "record-magic", JOURNAL_NAME, offset_of(9), id="last magic"),
        pytest.param(put("journal", offset_of(9), 0), "record-type", JOURNAL_NAME, offset_of(9), id="last type"),
        pytest.param(
            put("journal", offset_of(4) + 15, 1), "timestamp-implausible", JOURNAL_NAME, offset_of(4), id="late"
        ),
        pytest.param(put("journal", offset_of(4) + 16, 0), "timestamp-implausible", JOURNAL_NAME, offset_of(4), id="0"),
        pytest.param(put("journal", offset_of(4) + 20, 1), "reserved-not-zero", JOURNAL_NAME, offset_of(4), id="spare"),
        pytest.param(put("journal", offset_of(2) + 31, 1), "reserved-not-zero", JOURNAL_NAME, offset_of(2), id="file"),
        pytest.param(put("journal", offset_of(1) + 1, 1), "reserved-not-zero", JOURNAL_NAME, offset_of(1), id="flags"),
        pytest.param(put("journal", offset_of(4) + 1, 8), "field-unknown", JOURNAL_NAME, offset_of(4), id="reason"),
        pytest.param(put("journal", offset_of(5) + 1, 3), "field-unknown", JOURNAL_NAME, offset_of(5), id="deletion"),
        pytest.param(put("journal", offset_of(2) + 21, 5), "field-invalid", JOURNAL_NAME, offset_of(2), id="zip"),
        pytest.param(put("journal", offset_of(2) + 1, 0), "field-unknown", JOURNAL_NAME, offset_of(2), id="refs"),
        pytest.param(put("journal", offset_of(6) + 23, 3), "field-invalid", JOURNAL_NAME, offset_of(6), id="sync type"),
        pytest.param(put("journal", offset_of(6) + 27, 9), "journal-op-unknown", JOURNAL_NAME, offset_of(6), id="op"),
        pytest.param(put("journal", offset_of(6) + 35, 9), "sync-point", JOURNAL_NAME, offset_of(6), id="sync number"),
        pytest.param(put("journal", offset_of(6) + 43, 9), "sync-point", JOURNAL_NAME, offset_of(6), id="sync lease"),
        pytest.param(put("journal", offset_of(6) + 47, 0), "sync-point", JOURNAL_NAME, offset_of(6), id="sync data"),
        pytest.param(put("journal", offset_of(6) + 51, 0), "sync-point", JOURNAL_NAME, offset_of(6), id="sync qlist"),
        pytest.param(put("data", FIRST_PAYLOAD + 12, 7), "payload-checksum", DATA_NAME, 52, id="payload"),
        pytest.param(
            put("journal", offset_of(2) + 55, 0x11), "payload-checksum", DATA_NAME, 52, id="checksum in the journal"
        ),
        pytest.param(put("data", FIRST_PAYLOAD + 23, 9), "data-record", DATA_NAME, 63, id="padding"),
        pytest.param(put("data", FIRST_PAYLOAD, 0x40), "data-record", DATA_NAME, 40, id="header words"),
        pytest.param(put("journal", offset_of(4) + 31, 0), "unknown-app-key", JOURNAL_NAME, offset_of(4), id="app"),
        pytest.param(
            put("journal", offset_of(4) + 47, 9), "confirm-without-message", JOURNAL_NAME, offset_of(4), id="id"
        ),
        pytest.param(put("qlist", FIRST_QUEUE + 40, 9), "qlist-mismatch", QLIST_NAME, FIRST_QUEUE, id="queue key"),
        pytest.param(put("qlist", FIRST_QUEUE + 39, 9), "qlist-record", QLIST_NAME, 75, id="uri padding"),
        pytest.param(put("journal", offset_of(1) + 39, 0), "qlist-offset", JOURNAL_NAME, offset_of(1), id="no qlist"),
    ],
)
def test_one_damage_is_placed(damage: Damage, code: str, file: str, offset: int) -> None:
    writer = healthy()
    damage(writer)
    found = writer.faults()
    assert (code, file, offset) in [(f.code, f.file, f.offset) for f in found]
    assert all(f.reason and f.advice and f.severity is CATALOGUE[f.code].severity for f in found)


def test_neighbours_of_an_unreadable_record_are_not_blamed() -> None:
    writer = healthy()
    writer.journal[offset_of(4) + 57] = 0
    assert writer.codes() == ["record-magic"]


@pytest.mark.parametrize(
    ("write", "codes"),
    [
        pytest.param(lambda w: w.post(4).post(4), ["duplicate-message"], id="the same GUID twice"),
        pytest.param(lambda w: w.confirm(9), ["confirm-without-message"], id="a confirm of nothing"),
        pytest.param(lambda w: w.delete(9), ["deletion-without-message"], id="a deletion of nothing"),
        pytest.param(lambda w: w.confirm(9).post(9), ["confirm-without-message"], id="too early"),
        pytest.param(lambda w: w.confirm(9, reason=2).post(9).confirm(9), [], id="confirmed before it is written"),
        pytest.param(lambda w: w.confirm(9, reason=2), [], id="confirmed, and then not written"),
        pytest.param(lambda w: w.post(1).confirm(1).delete(1).post(1), [], id="posted again once it is gone"),
        pytest.param(lambda w: w.post(1).post(1), ["duplicate-message"], id="posted again, and again"),
        pytest.param(lambda w: w.confirm(1), ["confirm-without-message"], id="a confirm after the deletion"),
        pytest.param(lambda w: w.delete(1), ["deletion-without-message"], id="a second deletion"),
        pytest.param(lambda w: w.post(4, OTHER), ["unknown-queue-key"], id="a queue that never was"),
        pytest.param(lambda w: w.create(), ["queue-created-twice"], id="a queue created twice"),
        pytest.param(lambda w: w.delete_queue().post(4), ["unknown-queue-key"], id="a deleted queue"),
        pytest.param(lambda w: w.delete_queue(OTHER), ["unknown-queue-key"], id="deletion of a queue that never was"),
        pytest.param(lambda w: w.purge(OTHER), ["unknown-queue-key"], id="purge of a queue that never was"),
        pytest.param(lambda w: w.create(OTHER, QueueOpType.ADDITION), ["unknown-queue-key"], id="an app for no queue"),
        pytest.param(lambda w: w.confirm(2, app=b"appk2"), ["unknown-app-key"], id="an app that never was"),
        pytest.param(
            lambda w: w.create(QUEUE, QueueOpType.ADDITION, b"appk2").confirm(2, app=b"appk2"), [], id="an added app"
        ),
        pytest.param(lambda w: w.confirm(2, app=NULL_KEY), [], id="a confirm without an app"),
    ],
)
def test_references_of_records_are_checked(write: Callable[[Writer], Writer], codes: list[str]) -> None:
    writer = healthy()
    assert write(writer).codes() == codes


@pytest.mark.parametrize(
    ("number", "lease", "code"),
    [
        (12, 1, "sequence-gap"),
        (1 << 40, 1, "sequence-gap"),
        (10, 1, "sequence-repeated"),
        (3, 1, "sequence-repeated"),
        (2, 2, "lease-start"),
        (11, 0xFFFF_FFFF, "lease-start"),
    ],
)
def test_order(number: int, lease: int, code: str) -> None:
    writer = healthy()
    writer.number, writer.lease = number - 1, lease
    (found,) = writer.post(4).faults()
    assert (found.code, found.offset) == (code, offset_of(10))


def test_leases_never_fall() -> None:
    writer = healthy()
    writer.lease, writer.number = 2, 0
    writer.post(4)
    writer.lease, writer.number = 1, 10
    (found,) = writer.post(5).faults()
    assert (found.code, found.offset) == ("lease-backwards", offset_of(11))


def test_a_clock_that_was_set_back() -> None:
    writer = healthy()
    writer.second -= 601
    (found,) = writer.post(4).post(5).faults()
    assert (found.code, found.severity, found.offset) == ("timestamp-backwards", Severity.WARNING, offset_of(10))


@pytest.mark.slow
def test_order_is_followed_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same faults, at the same places, whatever the size of a chunk."""
    writer = healthy()
    for number in range(10, 60):
        writer.post(number).confirm(number).delete(number)
        if number == 30:
            writer.number += 1
        if number == 40:
            writer.sync_point()
            writer.data += bytes(8)
    writer.data[FIRST_PAYLOAD + 12] ^= 1
    whole = sorted(writer.faults(), key=lambda found: found.code)
    assert [found.code for found in whole] == ["data-gap", "payload-checksum", "sequence-gap"]
    for size in (1, 2, 3, 7, 50):
        monkeypatch.setattr("formats.bmq.stores.recover.CHUNK_RECORDS", size)
        assert sorted(writer.faults(), key=lambda found: found.code) == whole


def test_data_that_no_message_refers_to() -> None:
    writer = healthy()
    end = len(writer.data)
    writer.data += bytes(24)
    write_data_record(writer.data, end, b"lost")
    (found,) = writer.faults()
    assert (found.code, found.severity, found.offset) == ("data-tail", Severity.WARNING, end)
    (found,) = writer.post(4).faults()
    assert (found.code, found.severity, found.offset) == ("data-gap", Severity.ERROR, end)


def test_two_messages_with_one_payload() -> None:
    writer = healthy()
    payload = bytes([1] * 10)
    journal_packing.pack_message(*writer.next(), 1, 0, QUEUE, FIRST_PAYLOAD // 8, guid(4), crc32c(payload))
    assert "data-overlap" in writer.codes()


def test_a_queue_record_without_a_journal_record() -> None:
    writer = healthy()
    end = len(writer.qlist)
    writer.qlist += build_queue_record("bmq://domain/lost", OTHER, [])
    (found,) = writer.faults()
    assert (found.code, found.severity, found.offset) == ("qlist-tail", Severity.WARNING, end)


@pytest.mark.slow
def test_a_torn_last_record_is_a_warning() -> None:
    """A stop amid the last write, in a file cut there or in a preallocated one."""
    whole = healthy()
    for size in range(1, JOURNAL_RECORD_SIZE):
        for tail in (0, size, size + 600):
            torn = healthy()
            del torn.journal[-size:]
            torn.journal += bytes(tail)
            found = torn.faults()
            assert [(f.code, f.severity) for f in found] == [("torn-tail", Severity.WARNING)]
            assert found[0].offset == len(whole.journal) - JOURNAL_RECORD_SIZE


def test_records_behind_damage_after_the_last_sync_point() -> None:
    """A broker would take the damage for the end, and lose what follows."""
    writer = healthy().post(4).post(5).post(6)
    writer.journal += bytes(6000)
    writer.journal[offset_of(11) + 56] = 0
    found = writer.faults()
    assert ("records-after-end", offset_of(11)) in [(f.code, f.offset) for f in found]
    assert any(f.code == "data-tail" for f in found)


@pytest.mark.parametrize("size", [1, 7, 8, 20, 40])
def test_a_data_file_that_was_cut(size: int) -> None:
    writer = healthy()
    cut("data", size)(writer)
    found = writer.faults()
    assert {f.code for f in found} & {"data-record", "data-offset"}
    assert any(f.severity is Severity.ERROR for f in found)


@pytest.mark.parametrize("size", [1, 4, 30])
def test_a_qlist_file_that_was_cut(size: int) -> None:
    writer = healthy()
    cut("qlist", size)(writer)
    assert writer.codes() == ["qlist-record"]


def test_a_journal_that_was_cut_leaves_payloads_behind() -> None:
    writer = healthy()
    cut("journal", 3 * JOURNAL_RECORD_SIZE)(writer)
    assert writer.codes() == ["data-tail"]


def test_files_alone() -> None:
    journal_view, data, qlist = healthy().views()
    assert isinstance(data.buffer, bytearray)
    assert isinstance(qlist.buffer, bytearray)
    data.buffer[FIRST_PAYLOAD] = 0
    qlist.buffer[FIRST_QUEUE + 3] = 7
    assert [f.code for f in validate_file(journal_view, FileType.JOURNAL)] == []
    assert [f.code for f in validate_file(data, FileType.DATA)] == ["data-record"]
    assert [f.code for f in validate_file(qlist, FileType.QLIST)] == ["qlist-record"]
    assert [f.code for f in validate_file(data, FileType.QLIST)] == ["header"]


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    assert list(validate_file_set(*healthy().views(), on_progress=lambda *step: told.append(step))) == []
    assert told == [(10, 10)]


@pytest.mark.slow
def test_noise_never_raises() -> None:
    dice = random.Random(11)
    for _ in range(400):
        writer = healthy()
        for file in (writer.journal, writer.data, writer.qlist):
            for _ in range(dice.randrange(6)):
                file[dice.randrange(len(file))] = dice.randrange(256)
            del file[dice.randrange(len(file)) :][: dice.randrange(40)]
        for found in writer.faults():
            assert found.code in CATALOGUE
            assert found.offset >= 0


@pytest.mark.parametrize("name", STORES)
def test_damaged_ledgers(store: Stores, name: str) -> None:
    original = bytes(store(name).ledger()[:4096])
    offsets = [record.offset for record in iter_ledger(original)]
    file_name = store(name).path(".bmq_csl").name

    def codes(content: bytes | bytearray) -> list[tuple[str, int]]:
        return [(found.code, found.offset) for found in validate_ledger(FileView(file_name, content))]

    damaged = bytearray(original)
    damaged[offsets[2] + 40] ^= 1
    assert [code for code, _ in codes(damaged)] == ["ledger-checksum"]
    damaged = bytearray(original)
    damaged[0] = 0
    assert codes(damaged) == [("header", 0)]
    damaged = bytearray(original)
    damaged[3] ^= 1
    assert codes(damaged) == [("ledger-name", 1)]


def test_ledger_numbers_never_fall() -> None:
    body = bytes.fromhex("30800000")
    start = initial_ledger_bytes(b"logid")
    records = [build_ledger_record(LedgerRecordType.COMMIT, 1, number, SECOND, body) for number in (3, 4, 2)]
    found = list(validate_ledger(FileView("ledger", start + b"".join(records))))
    order = [f for f in found if f.code == "ledger-order"]
    assert [f.offset for f in order] == [len(start) + len(records[0]) + len(records[1])]
    assert {f.code for f in found} == {"ledger-order", "ledger-message"}


class Growing(NamedTuple):
    """A journal to which a broker writes `more` once its records have been read."""

    view: FileView
    more: bytes

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def size(self) -> int:
        return self.view.size + len(self.more)

    def read(self, offset: int, size: int) -> memoryview:
        known = self.view.size
        grown = bytes(self.view.buffer) + self.more
        # Where the journal ends is asked first, in the zeros of its preallocated tail.
        content = grown if offset >= known and size == JOURNAL_RECORD_SIZE else grown[:known].ljust(len(grown), b"\0")
        return memoryview(content)[offset : offset + size]


def test_a_journal_that_grows_meanwhile() -> None:
    writer = healthy()
    _, data, qlist = writer.views()
    before = FileView(JOURNAL_NAME, bytes(writer.journal))
    more = bytes(writer.post(4).post(5).journal[before.size :])
    found = list(validate_file_set(Growing(before, more), data, qlist))
    assert [f.code for f in found] == ["data-tail"]
