"""`bmqctl journal repair`, one damage at a time: what is kept, what is left out, what is said of it."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.build import build_store
from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    ClusterMessage,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    QueueAssignmentAdvisory,
    QueueInfo,
)
from formats.bmq.disk.files import FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, initial_bytes, open_file
from formats.bmq.disk.journal import (
    ConfirmRecord,
    DeletionRecord,
    JournalOpRecord,
    MessageRecord,
    QueueOpRecord,
    Record,
    decode_record,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record
from formats.bmq.stores.recover import iter_journal, iter_ledger
from tests.bmqctl.stores.blazingmq.small_store import EXTENSIONS, START_S, build_small_store, read_files, small_lines
from tests.golden.archives import STORES, only
from tests.waiting import WAIT_S

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]

JOURNAL, DATA, QLIST, LEDGER = EXTENSIONS
FIRST = len(initial_bytes(FileType.JOURNAL, 0))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return build_small_store(tmp_path / "store")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def records(store: Path) -> list[tuple[int, Record]]:
    return list(iter_journal(only(store, JOURNAL).read_bytes()))


def change(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def flip(path: Path, offset: int, bit: int = 4) -> None:
    change(path, offset, bytes([path.read_bytes()[offset] ^ 1 << bit]))


def repaired(run: Run, store: Path, out: Path, *options: str, code: int = 1) -> dict[str, Any]:
    """Repair, and check what is always so."""
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    outcome = run("repair", store, "--out", out, "--json", *options)
    assert outcome.code == code, outcome.err
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before
    report: dict[str, Any] = json.loads(outcome.out)
    assert report["errors"] == 0, report["counts"]
    checked = run("validate", "--json", out)
    assert checked.code == 0, checked.out
    assert json.loads(checked.out)["counts"] == report["counts"]
    return report


def left_out(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [*report["left_out"], *(note for part in report["partitions"] for note in part["left_out"])]


def restored(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [*report["restored"], *(note for part in report["partitions"] for note in part["restored"] + part["added"])]


def guids(store: Path) -> list[bytes]:
    return [record.guid for _, record in readable(store) if isinstance(record, MessageRecord)]


def first(store: Path, kind: type, nth: int = 0) -> tuple[int, Any]:
    return [(offset, record) for offset, record in records(store) if isinstance(record, kind)][nth]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_sound_store_stays_as_it_is(run: Run, golden: Callable[[str], Path], out: Path, name: str) -> None:
    report = repaired(run, golden(name), out, "--alone", code=0)
    assert (left_out(report), restored(report), report["warnings"]) == ([], [], 0)
    for path in golden(name).iterdir():
        written = (out / path.name).read_bytes()
        with path.open("rb") as file:
            assert file.read(len(written)) == written
            assert not any(file.read(1 << 20))


def test_a_payload_with_a_wrong_checksum(run: Run, store: Path, out: Path) -> None:
    offset, message = first(store, MessageRecord, 4)
    flip(only(store, DATA), message.message_offset_dwords * 8 + 13)
    report = repaired(run, store, out)
    (message_note, *others) = [note for note in left_out(report) if note["what"] != "PAYLOAD"]
    assert (message_note["what"], message_note["offset"], message_note["size"]) == ("MESSAGE", offset, 60)
    assert message_note["guid"] == message.guid.hex().upper()
    assert message_note["queue_uri"] == "bmq://domain/prices"
    assert "wrong checksum" in message_note["reason"]
    assert [note["reason"] for note in others] == ["its message is left out"] * len(others)
    assert {note["guid"] for note in others} <= {message_note["guid"]}
    (payload,) = [note for note in left_out(report) if note["what"] == "PAYLOAD"]
    assert (payload["file"], payload["offset"]) == (only(store, DATA).name, message.message_offset_dwords * 8)
    assert guids(out) == [guid for guid in guids(store) if guid != message.guid]


def test_numbers_are_kept_and_gaps_are_before_the_first_sync_point(run: Run, store: Path, out: Path) -> None:
    """The reference accepts numbers that only increase before the header's sync point, like those after a rollover."""
    offset, _ = first(store, MessageRecord, 4)
    change(only(store, JOURNAL), offset, bytes(JOURNAL_RECORD_SIZE))
    report = repaired(run, store, out)
    numbers = {(r.primary_lease_id, r.sequence_number): type(r) for _, r in readable(store)}
    kept = {(r.primary_lease_id, r.sequence_number): type(r) for _, r in records(out)}
    assert kept.items() <= numbers.items()
    opened = open_file(only(out, JOURNAL).read_bytes(), FileType.JOURNAL)
    assert report["partitions"][0]["sync_points_dropped"] == 1
    stated = int.from_bytes(only(out, JOURNAL).read_bytes()[FILE_HEADER.size + 4 : opened.first_record_offset]) * 4
    offset, sync_point = first(out, JournalOpRecord)
    assert stated == offset
    assert (sync_point.primary_lease_id, sync_point.sequence_number) in numbers


def readable(store: Path) -> list[tuple[int, Record]]:
    """Every record that can be read, whatever lies between them."""
    content = only(store, JOURNAL).read_bytes()
    places = range(FIRST, len(content), JOURNAL_RECORD_SIZE)
    return [(at, decode_record(content, at)) for at in places if any(content[at : at + JOURNAL_RECORD_SIZE])]


def test_an_unfinished_record_at_the_end(run: Run, store: Path, out: Path) -> None:
    journal = only(store, JOURNAL)
    whole = read_files(store)
    with journal.open("ab") as file:
        file.write(bytes(range(0x11, 0x11 + 40)))
    (note,) = left_out(repaired(run, store, out))
    assert (note["file"], note["offset"], note["size"]) == (journal.name, len(whole[JOURNAL]), 40)
    assert note["reason"] == "an unfinished record"
    assert read_files(out) == whole


def test_a_last_record_without_its_magic_was_never_finished(run: Run, store: Path, out: Path) -> None:
    journal = only(store, JOURNAL)
    size = journal.stat().st_size
    change(journal, size - 4, bytes(4))
    note, payload = left_out(repaired(run, store, out))
    assert (note["offset"], note["reason"]) == (size - 60, "an unfinished record")
    assert payload["what"] == "PAYLOAD"
    assert records(out) == records(store)


def test_a_payload_whose_record_was_never_written(run: Run, store: Path, out: Path) -> None:
    whole = read_files(store)
    change(only(store, DATA), len(whole[DATA]), whole[DATA][40:64])
    (note,) = left_out(repaired(run, store, out))
    assert (note["what"], note["offset"], note["size"]) == ("PAYLOAD", len(whole[DATA]), 24)
    assert read_files(out) == whole


def in_file(extension: str, offset: int) -> Callable[[Path], None]:
    return lambda store: flip(only(store, extension), offset)


def in_record(kind: type, nth: int, byte: int, bit: int = 4) -> Callable[[Path], None]:
    """A bit of the nth record of a kind."""
    return lambda store: flip(only(store, JOURNAL), first(store, kind, nth)[0] + byte, bit)


# Damage to one record that the others mend.
MENDED = [
    pytest.param(in_record(MessageRecord, 3, 57), "MESSAGE", id="magic"),
    pytest.param(in_record(ConfirmRecord, 0, 56), "CONFIRM", id="magic of a confirm"),
    pytest.param(in_record(MessageRecord, 3, 3), "MESSAGE", id="high number"),
    pytest.param(in_record(DeletionRecord, 0, 7, 2), "DELETION", id="number of another"),
    pytest.param(in_record(ConfirmRecord, 1, 8), "CONFIRM", id="lease"),
    pytest.param(in_record(MessageRecord, 5, 34), "MESSAGE", id="payload elsewhere"),
    pytest.param(in_record(QueueOpRecord, 0, 23), "QUEUE_OP", id="queue key of a creation"),
    pytest.param(in_record(QueueOpRecord, 0, 38), "QUEUE_OP", id="qlist offset"),
    pytest.param(in_record(QueueOpRecord, 3, 37), "QUEUE_OP", id="qlist offset of a purge"),
    pytest.param(in_record(JournalOpRecord, 1, 23, 6), "JOURNAL_OP", id="sync point type"),
    pytest.param(in_record(JournalOpRecord, 1, 35), "JOURNAL_OP", id="sync point number"),
    pytest.param(in_record(JournalOpRecord, 1, 39), "JOURNAL_OP", id="primary node"),
    pytest.param(in_file(QLIST, 60), "QUEUE_OP", id="queue name"),
    pytest.param(in_file(QLIST, 36), "QUEUE_OP", id="qlist lengths"),
]

# Damage that can be restored to the last bit: nothing is left out.
RESTORED = [
    *MENDED,
    pytest.param(in_file(JOURNAL, 1), "HEADER", id="journal header"),
    pytest.param(in_file(DATA, 9), "HEADER", id="data header"),
    pytest.param(in_file(QLIST, 23), "HEADER", id="partition id"),
    pytest.param(lambda store: change(only(store, DATA), 0, bytes(40)), "HEADER", id="no header"),
]


@pytest.mark.parametrize(("damage", "what"), RESTORED)
def test_repair_restores_fields_that_the_rest_proves(
    run: Run, store: Path, out: Path, damage: Callable[[Path], None], what: str
) -> None:
    sound = read_files(store)
    damage(store)
    report = repaired(run, store, out, code=0)
    assert what in [note["what"] for note in restored(report)]
    assert read_files(out) == sound


def test_without_qlist_the_ledger_names_the_queues(run: Run, store: Path, out: Path) -> None:
    """The queues that were there at the end: the ledger does not have deleted ones."""
    only(store, QLIST).unlink()
    report = repaired(run, store, out)
    _, old = first(store, QueueOpRecord, 2)
    assert {note["queue_key"] for note in left_out(report) if note["queue_key"]} == {old.queue_key.hex().upper()}
    messages = [record for _, record in readable(store) if isinstance(record, MessageRecord)]
    assert guids(out) == [each.guid for each in messages if each.queue_key != old.queue_key]


def test_sync_points_say_where_the_files_end(run: Run, store: Path, out: Path) -> None:
    sound = read_files(store)
    offset, _ = first(store, JournalOpRecord, 1)
    flip(only(store, JOURNAL), offset + 47)
    repaired(run, store, out, code=0)
    assert read_files(out) == sound


def test_records_that_lie_at_each_others_place(run: Run, store: Path, out: Path) -> None:
    sound = read_files(store)
    one, other, size = FIRST + 600, FIRST + 1200, 300
    change(only(store, JOURNAL), one, sound[JOURNAL][other : other + size])
    change(only(store, JOURNAL), other, sound[JOURNAL][one : one + size])
    report = repaired(run, store, out, code=0)
    assert any("was out of place" in note["reason"] for note in restored(report))
    assert read_files(out) == sound


def test_a_queue_whose_creation_is_lost(run: Run, store: Path, out: Path) -> None:
    offset, creation = first(store, QueueOpRecord)
    change(only(store, JOURNAL), offset, bytes(JOURNAL_RECORD_SIZE))
    report = repaired(run, store, out)
    (note,) = left_out(report)
    assert (note["what"], note["offset"], note["size"]) == ("RECORDS", offset, 60)
    assert guids(out) == guids(store)
    made = next(r for _, r in records(out) if isinstance(r, QueueOpRecord) and r.queue_key == creation.queue_key)
    assert (made.primary_lease_id, made.sequence_number) == (creation.primary_lease_id, creation.sequence_number)
    assert "CREATION was lost" in restored(report)[0]["reason"]


def test_a_queue_that_nothing_names(run: Run, store: Path, out: Path) -> None:
    """The queue's messages cannot be served, since its name is unknown."""
    only(store, LEDGER).unlink()
    _, creation = first(store, QueueOpRecord)
    flip(only(store, QLIST), creation.queue_uri_record_offset_words * 4 + 20)
    report = repaired(run, store, out)
    lost = {note["guid"] for note in left_out(report) if note["what"] == "MESSAGE"}
    messages = [record for _, record in readable(store) if isinstance(record, MessageRecord)]
    assert lost == {each.guid.hex().upper() for each in messages if each.queue_key == creation.queue_key}
    assert guids(out) == [each.guid for each in messages if each.queue_key != creation.queue_key]


def test_without_data_no_message_is_left(run: Run, store: Path, out: Path) -> None:
    only(store, DATA).unlink()
    report = repaired(run, store, out)
    assert len([note for note in left_out(report) if note["what"] == "MESSAGE"]) == len(guids(store))
    assert guids(out) == []
    assert [type(record) for _, record in records(out)][-1] is JournalOpRecord


def test_notes_are_rows_for_programs(run: Run, store: Path, tmp_path: Path) -> None:
    only(store, DATA).unlink()
    report = json.loads(run("repair", store, "--out", tmp_path / "one", "--output", "json").out)
    notes = [{"outcome": "left_out", **note} for note in left_out(report)]
    notes += [{"outcome": "restored", **note} for note in restored(report)]
    assert len(notes) > 1
    outcome = run("repair", store, "--out", tmp_path / "two", "--output", "jsonl")
    assert (outcome.code, list(map(json.loads, outcome.out.splitlines()))) == (1, notes)
    outcome = run("repair", store, "--out", tmp_path / "three", "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert rows == [{name: "" if value is None else str(value) for name, value in note.items()} for note in notes]


def test_without_a_journal_nothing_is_left(run: Run, store: Path, out: Path) -> None:
    names = sorted(path.name for path in store.glob("bmq_0.*") if not path.name.endswith(JOURNAL))
    only(store, JOURNAL).unlink()
    outcome = run("repair", store, "--out", out, "--json")
    report = json.loads(outcome.out)
    assert (outcome.code, report["errors"]) == (1, 0)
    notes = left_out(report)
    assert sorted(note["file"] for note in notes) == names
    assert {note["what"] for note in notes} == {"FILE"}
    assert [path.suffix for path in out.iterdir()] == [LEDGER]


def test_a_damaged_ledger_is_made_anew(run: Run, store: Path, out: Path) -> None:
    sound = read_files(store)
    flip(only(store, LEDGER), 60)
    report = repaired(run, store, out, code=0)
    (note,) = restored(report)
    assert (note["file"], note["what"]) == (only(store, LEDGER).name, "FILE")
    assert report["warnings"] == 0
    assert {each: content for each, content in read_files(out).items() if each != LEDGER} == {
        each: content for each, content in sound.items() if each != LEDGER
    }
    # Its term is higher than the damaged one's, so that no record of it is taken for one of these.
    terms = [record.header.elector_term for record in iter_ledger(read_files(out)[LEDGER])]
    assert terms == [2, 2]


def test_an_unfinished_ledger_record_is_cut_off(run: Run, store: Path, out: Path) -> None:
    sound = read_files(store)
    with only(store, LEDGER).open("ab") as file:
        file.write(sound[LEDGER][8:58])
    (note,) = left_out(repaired(run, store, out))
    assert (note["offset"], note["size"]) == (len(sound[LEDGER]), 50)
    assert read_files(out) == sound


def test_a_confirm_by_nobody_is_said_to_matter(run: Run, store: Path, out: Path) -> None:
    offset, _ = first(store, ConfirmRecord)
    flip(only(store, JOURNAL), offset + 28)
    (note, *_) = left_out(repaired(run, store, out))
    assert note["what"] == "CONFIRM"
    assert "may be delivered to the app again" in note["reason"]


# -- several partitions, several sets of files


def test_one_partition_of_two_is_damaged(run: Run, tmp_path: Path, out: Path) -> None:
    store = tmp_path / "two"
    store.mkdir()
    lines = [{**line, "partition_id": part} for part in (0, 1) for line in small_lines(8)]
    for line in lines:
        if line["partition_id"] and "queue_uri" in line:
            line["queue_uri"] += "-1"
    build_store(map(json.dumps, lines), store, START_S)
    sound = {path.name: path.read_bytes() for path in store.iterdir()}
    (data,) = store.glob("bmq_1.*.bmq_data")
    flip(data, 53)
    report = repaired(run, store, out)
    assert [(part["partition_id"], bool(part["left_out"])) for part in report["partitions"]] == [(0, False), (1, True)]
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {name for name in sound if written[name] == sound[name]} >= {
        name for name in sound if ".csl" in name or "_0." in name
    }


def set_aside(store: Path, timestamp: str) -> list[Path]:
    """Copies of the partition's files as if they had been made at another time."""
    copies = []
    for path in sorted(store.glob("bmq_0.*")):
        copy = path.with_name(path.name.replace("20261121_051104", timestamp))
        copy.write_bytes(path.read_bytes())
        copies.append(copy)
    return copies


def test_files_of_a_rollover_that_did_not_finish(run: Run, store: Path, out: Path) -> None:
    sound = read_files(store)
    newer = set_aside(store, "20261122_000000")
    report = repaired(run, store, out)
    assert sorted(note["file"] for note in left_out(report)) == [path.name for path in newer]
    assert read_files(out) == sound


def test_files_that_a_rollover_replaced(run: Run, store: Path, out: Path) -> None:
    older = set_aside(store, "20261120_000000")
    first_sync_point = (FIRST // 4).to_bytes(8, "big")
    change(only_newest(store), FILE_HEADER.size + 4, first_sync_point)
    report = repaired(run, store, out)
    assert sorted(note["file"] for note in left_out(report)) == [path.name for path in older]
    assert only_newest(out).read_bytes() == only_newest(store).read_bytes()


def only_newest(store: Path) -> Path:
    return max(store.glob(f"*{JOURNAL}"))


def test_an_older_ledger_is_left_out(run: Run, store: Path, out: Path) -> None:
    ledger = only(store, LEDGER)
    older = ledger.with_name(ledger.name.replace("20261121", "20261120"))
    older.write_bytes(ledger.read_bytes())
    (note,) = left_out(repaired(run, store, out))
    assert (note["file"], note["what"]) == (older.name, "FILE")


def test_a_ledger_of_a_stop_between_two_writes_stays(run: Run, store: Path, out: Path) -> None:
    """A ledger with a queue that the journal does not have yet, which is no damage."""
    sound = read_files(store)
    info = QueueInfo(uri="bmq://domain/new", key=b"newer", partition_id=0)
    update = QueueAssignmentAdvisory(
        sequence_number=LeaderMessageSequence(elector_term=1, sequence_number=3), queues=(info,)
    )
    commit = LeaderAdvisoryCommit(
        sequence_number=LeaderMessageSequence(elector_term=1, sequence_number=4),
        sequence_number_committed=update.sequence_number,
    )
    with only(store, LEDGER).open("ab") as file:
        for kind, number, choice in ((LedgerRecordType.UPDATE, 3, update), (LedgerRecordType.COMMIT, 4, commit)):
            file.write(build_ledger_record(kind, 1, number, START_S, ber.encode(ClusterMessage(choice=choice))))
    report = repaired(run, store, out, code=0)
    assert report["counts"] == {"ledger-ahead": 1}
    assert read_files(out) == read_files(store) != sound


# -- for a cluster's node


def test_a_replica_keeps_what_precedes_the_damage(run: Run, store: Path, out: Path) -> None:
    sound = read_files(store)
    offset, message = first(store, MessageRecord, 8)
    payload = message.message_offset_dwords * 8
    flip(only(store, DATA), payload + 14)
    report = repaired(run, store, out, "--replica")
    written = read_files(out)
    assert written[JOURNAL] == sound[JOURNAL][:offset]
    assert written[DATA] == sound[DATA][:payload]
    assert sound[QLIST].startswith(written[QLIST])
    assert written[LEDGER] == sound[LEDGER]
    (rest,) = left_out(report)
    assert (rest["offset"], rest["size"]) == (offset, len(sound[JOURNAL]) - offset)
    assert rest["guid"] == message.guid.hex().upper()
    assert "wrong checksum" in rest["reason"]


@pytest.mark.parametrize(("damage", "what"), MENDED)
def test_a_replica_restores_no_record(
    run: Run, store: Path, out: Path, damage: Callable[[Path], None], what: str
) -> None:
    sound = read_files(store)
    damage(store)
    report = repaired(run, store, out, "--replica")
    assert sound[JOURNAL].startswith(read_files(out)[JOURNAL])
    (rest,) = left_out(report)
    assert what in rest["reason"]


def test_a_replica_that_is_damaged_from_its_start(run: Run, store: Path, out: Path) -> None:
    change(only(store, JOURNAL), FIRST, bytes(JOURNAL_RECORD_SIZE))
    outcome = run("repair", store, "--out", out, "--replica", "--json")
    assert outcome.code == 1
    assert [path.suffix for path in out.iterdir()] == [LEDGER]
    assert {note["what"] for note in left_out(json.loads(outcome.out))} == {"FILE"}


def test_a_replica_gets_its_ledger_from_the_leader(run: Run, store: Path, out: Path) -> None:
    flip(only(store, LEDGER), 60)
    (note,) = left_out(repaired(run, store, out, "--replica"))
    assert (note["file"], note["what"]) == (only(store, LEDGER).name, "FILE")
    assert "the leader sends the rest again" in note["reason"]
    assert not list(out.glob("*.bmq_csl"))


def test_which_copy_it_is_must_be_said_for_a_clusters_node(run: Run, golden: Callable[[str], Path], out: Path) -> None:
    outcome = run("repair", golden("cluster-node0"), "--out", out)
    assert (outcome.code, outcome.out) == (2, "")
    assert "nodes 1, 3 were primary" in outcome.err
    assert "--replica" in outcome.err
    assert not out.exists()


# -- what is refused


def test_never_in_place(run: Run, store: Path, tmp_path: Path) -> None:
    before = read_files(store)
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    link = tmp_path / "link"
    link.symlink_to(store)
    for bad in (store, store / "out", store / "deep" / "out", link / "out", full, full / "something", tmp_path):
        outcome = run("repair", store, "--out", bad)
        assert (outcome.code, outcome.out) == (2, ""), bad
        assert outcome.err.count("\n") == 1
    assert read_files(store) == before
    assert len(list(store.iterdir())) == len(before)


def test_there_must_be_a_store(run: Run, store: Path, out: Path, tmp_path: Path) -> None:
    for bad in (tmp_path / "none", only(store, JOURNAL)):
        outcome = run("repair", bad, "--out", out)
        assert (outcome.code, outcome.out) == (2, "")
    (tmp_path / "empty").mkdir()
    assert run("repair", tmp_path / "empty", "--out", out).code == 2
    assert not out.exists()


def test_a_disk_that_is_full_leaves_no_half_of_a_store(
    run: Run, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    outcome = run("repair", store, "--out", out)
    assert outcome.code == 2
    assert "No space left on device" in outcome.err
    assert not out.exists()
    out.mkdir()
    assert run("repair", store, "--out", out).code == 2
    assert list(out.iterdir()) == []


@pytest.mark.process
def test_a_repair_that_is_killed_leaves_nothing_that_looks_like_a_store(store: Path, out: Path) -> None:
    """A process that kills itself when the first file has been written."""
    program = (
        "import os, signal, sys; from bmqctl.app import main; "
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL); main()"
    )
    command = [sys.executable, "-c", program, "journal", "repair", str(store), "--out", str(out)]
    assert subprocess.run(command, check=False, timeout=WAIT_S).returncode == -signal.SIGKILL
    assert [path.name for path in out.iterdir()] == [".unfinished"]
    assert list((out / ".unfinished").iterdir())


# -- in words


def test_in_words(run: Run, store: Path, out: Path) -> None:
    offset, message = first(store, MessageRecord, 4)
    flip(only(store, DATA), message.message_offset_dwords * 8 + 13)
    outcome = run("repair", store, "--out", out)
    assert outcome.code == 1
    assert f"left out: {only(store, JOURNAL).name}" in outcome.out
    assert str(offset) in outcome.out
    assert message.guid.hex().upper() in outcome.out
    assert "1 sync points not carried over" in outcome.out
    assert "0 errors and 0 warnings (--alone)" in outcome.out.replace("\n", "")


def test_tables_have_a_limit(run: Run, store: Path, out: Path) -> None:
    only(store, DATA).unlink()
    outcome = run("repair", store, "--out", out, "--limit", "3")
    assert "more lines are not shown" in outcome.out


def test_help_has_examples(run: Run) -> None:
    outcome = run("repair", "--help")
    assert outcome.code == 0
    assert "bmqctl journal repair " in outcome.out
    assert "Exit codes" in outcome.out
