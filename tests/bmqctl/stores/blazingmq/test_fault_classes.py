"""Every class of fault, made in a sound store: exactly its code, at exactly its place, and an advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from formats.bmq.disk.data import parse_data_record
from formats.bmq.disk.journal import DeletionRecord, JournalOpRecord, MessageRecord, QueueOpRecord, Record
from formats.bmq.stores.faults import CATALOGUE
from formats.bmq.stores.recover import iter_journal
from tests.bmqctl.stores.blazingmq.small_store import EXTENSIONS, build_small_store
from tests.golden.archives import only

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Place = tuple[str, int]
"""Extension and offset."""

JOURNAL, DATA, QLIST, LEDGER = EXTENSIONS
WORD, DWORD, RECORD = 4, 8, 60


def records(store: Path, kind: type = object) -> list[tuple[int, Any]]:
    found: list[tuple[int, Record]] = list(iter_journal(only(store, JOURNAL).read_bytes()))
    return [(offset, record) for offset, record in found if isinstance(record, kind)]


def change(store: Path, extension: str, offset: int, content: bytes) -> Place:
    with only(store, extension).open("r+b") as file:
        file.seek(offset)
        file.write(content)
    return extension, offset


def flip(store: Path, extension: str, offset: int, bit: int = 0) -> Place:
    (byte,) = only(store, extension).read_bytes()[offset : offset + 1]
    return change(store, extension, offset, bytes([byte ^ 1 << bit]))


def cut(store: Path, extension: str, size: int) -> None:
    content = only(store, extension).read_bytes()
    only(store, extension).write_bytes(content[:size])


def torn_tail(store: Path) -> Place:
    end = only(store, JOURNAL).stat().st_size
    return change(store, JOURNAL, end, b"\x10 an unfinished record")


def bad_checksum(store: Path) -> Place:
    _, message = records(store, MessageRecord)[5]
    at = parse_data_record(only(store, DATA).read_bytes(), message.message_offset_dwords * DWORD).app_data_offset
    flip(store, DATA, at + 3)
    return DATA, at


def message_of_a_queue_never_created(store: Path) -> Place:
    offset, _ = records(store, MessageRecord)[-1]
    flip(store, JOURNAL, offset + 23)
    return JOURNAL, offset


def dangling_data_offset(store: Path) -> Place:
    offset, message = records(store, MessageRecord)[-1]
    cut(store, DATA, message.message_offset_dwords * DWORD)
    return JOURNAL, offset


def sequence_gap(store: Path) -> Place:
    offset, record = records(store)[-1]
    change(store, JOURNAL, offset + 4, (record.sequence_number + 1).to_bytes(4, "big"))
    return JOURNAL, offset


def lease_regression(store: Path) -> Place:
    offset, _ = records(store)[-1]
    change(store, JOURNAL, offset + 8, (1).to_bytes(4, "big"))
    return JOURNAL, offset


def deletion_without_message(store: Path) -> Place:
    offset, _ = records(store, DeletionRecord)[1]
    flip(store, JOURNAL, offset + 40)
    return JOURNAL, offset


def ref_count_mismatch(store: Path) -> Place:
    offset, _ = records(store, MessageRecord)[-1]
    flip(store, JOURNAL, offset + 1, 1)
    return JOURNAL, offset


def unaligned_data(store: Path) -> Place:
    _, message = records(store, MessageRecord)[5]
    at = message.message_offset_dwords * DWORD
    flip(store, DATA, at + 3)
    return DATA, at


def ledger_disagreement(store: Path) -> Place:
    _, creation = records(store, QueueOpRecord)[0]
    change(store, QLIST, only(store, QLIST).read_bytes().index(b"orders"), b"O")
    return QLIST, creation.queue_uri_record_offset_words * WORD


def two_names_of_a_queue(store: Path) -> Place:
    only(store, LEDGER).unlink()
    _, addition = records(store, QueueOpRecord)[-1]
    at = addition.queue_uri_record_offset_words * WORD
    change(store, QLIST, only(store, QLIST).read_bytes().index(b"prices", at), b"P")
    return QLIST, at


def damaged_header(store: Path) -> Place:
    flip(store, DATA, 2)
    return DATA, 0


def damaged_record(store: Path) -> Place:
    offset, _ = records(store, JournalOpRecord)[2]
    flip(store, JOURNAL, offset + 58)
    return JOURNAL, offset


def damaged_ledger(store: Path) -> Place:
    flip(store, LEDGER, 60)
    at = int.from_bytes(only(store, LEDGER).read_bytes()[12:16]) * WORD
    return LEDGER, 8 + 32 + at - WORD


def payload_without_record(store: Path) -> Place:
    content = only(store, DATA).read_bytes()
    return change(store, DATA, len(content), content[40:64])


def sync_point(store: Path) -> Place:
    offset, _ = records(store, JournalOpRecord)[2]
    flip(store, JOURNAL, offset + 47)
    return JOURNAL, offset


CLASSES = [
    (torn_tail, "torn-tail"),
    (bad_checksum, "payload-checksum"),
    (message_of_a_queue_never_created, "unknown-queue-key"),
    (dangling_data_offset, "data-offset"),
    (sequence_gap, "sequence-gap"),
    (lease_regression, "lease-backwards"),
    (deletion_without_message, "deletion-without-message"),
    (ref_count_mismatch, "ref-count"),
    (unaligned_data, "data-unaligned"),
    (ledger_disagreement, "ledger-disagreement"),
    (damaged_header, "header"),
    (damaged_record, "record-magic"),
    (damaged_ledger, "ledger-checksum"),
    (payload_without_record, "data-tail"),
    (sync_point, "sync-point"),
    (two_names_of_a_queue, "qlist-mismatch"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return build_small_store(tmp_path / "store")


def test_the_store_is_sound(run: Run, store: Path) -> None:
    found = json.loads(run("validate", "--json", store).out)
    assert (found["faults"], found["counts"], len(found["files"])) == ([], {}, 4)


@pytest.mark.parametrize(("damage", "code"), CLASSES, ids=[code for _, code in CLASSES])
def test_exactly_this_fault(run: Run, store: Path, damage: Callable[[Path], Place], code: str) -> None:
    extension, offset = damage(store)
    outcome = run("validate", "--json", store)
    found = json.loads(outcome.out)
    (fault,) = found["faults"]
    assert (fault["code"], fault["file"], fault["offset"]) == (code, only(store, extension).name, offset)
    assert found["counts"] == {code: 1}
    assert fault["severity"] == CATALOGUE[code].severity
    assert fault["advice"] == CATALOGUE[code].advice
    assert outcome.code == (1 if fault["severity"] == "error" else 0)


def test_codes_of_the_classes_differ() -> None:
    codes = [code for _, code in CLASSES]
    assert len(set(codes)) == len(codes)
