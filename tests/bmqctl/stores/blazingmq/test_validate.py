from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from bmqctl.stores.blazingmq.build import build_store
from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes, open_file
from formats.bmq.disk.journal import JOURNAL_OP_RECORD, JournalOpRecord, decode_record
from tests.golden.archives import STORES, only, storage_records

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]
Damage = Callable[[Path], object]


def report(outcome: Outcome) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(outcome.out)
    return parsed


@pytest.mark.parametrize("name", STORES)
def test_stores_of_the_reference_are_sound(run: Run, golden: Golden, name: str) -> None:
    outcome = run("validate", "--strict", "--json", golden(name))
    assert outcome.code == 0
    found = report(outcome)
    assert (found["errors"], found["warnings"], found["faults"]) == (0, 0, [])
    assert found["records"] == len(storage_records(name))
    assert sorted(Path(file).suffix for file in found["files"]) == [
        ".bmq_csl",
        ".bmq_data",
        ".bmq_journal",
        ".bmq_qlist",
    ]


def test_a_sound_store_in_words(run: Run, golden: Golden) -> None:
    outcome = run("validate", golden("single-clean"))
    assert (outcome.code, outcome.out) == (0, "0 errors and 0 warnings in 4 files with 604 journal records\n")


@pytest.mark.parametrize("extension", [".bmq_journal", ".bmq_data", ".bmq_qlist"])
def test_a_file_is_checked_with_those_beside_it(run: Run, golden: Golden, extension: str) -> None:
    found = report(run("validate", "--json", only(golden("single-clean"), extension)))
    assert (len(found["files"]), found["records"], found["errors"]) == (3, 604, 0)


def test_a_ledger_is_checked_alone(run: Run, golden: Golden) -> None:
    found = report(run("validate", "--json", only(golden("single-clean"), ".bmq_csl")))
    assert (len(found["files"]), found["records"], found["errors"]) == (1, 0, 0)


@pytest.mark.parametrize("extension", [".bmq_journal", ".bmq_data", ".bmq_qlist"])
def test_a_file_alone(run: Run, golden: Golden, tmp_path: Path, extension: str) -> None:
    """A file under another name has no other files; it is checked by itself."""
    file = tmp_path / "renamed"
    file.write_bytes(only(golden("single-clean"), extension).read_bytes())
    outcome = run("validate", "--json", file)
    assert outcome.code == 0
    assert report(outcome)["files"] == [str(file)]


def flip(extension: str, offset: int) -> Damage:
    def damage(store: Path) -> None:
        with only(store, extension).open("r+b") as file:
            file.seek(offset)
            (byte,) = file.read(1)
            file.seek(offset)
            file.write(bytes([byte ^ 0x10]))

    return damage


def cut(extension: str, size: int) -> Damage:
    def damage(store: Path) -> None:
        file = only(store, extension)
        os.truncate(file, file.stat().st_size - size)

    return damage


def remove(extension: str) -> Damage:
    return lambda store: only(store, extension).unlink()


def empty(extension: str) -> Damage:
    return lambda store: os.truncate(only(store, extension), 0)


@pytest.mark.parametrize(
    ("damage", "code", "extension", "offset"),
    [
        pytest.param(flip(".bmq_data", 60), "payload-checksum", ".bmq_data", 52, id="payload"),
        pytest.param(flip(".bmq_journal", 44 + 60 * 9 + 57), "record-magic", ".bmq_journal", 44 + 60 * 9, id="magic"),
        pytest.param(flip(".bmq_journal", 44 + 60 * 9 + 5), "sequence-gap", ".bmq_journal", 44 + 60 * 9, id="sequence"),
        pytest.param(flip(".bmq_journal", 3), "header", ".bmq_journal", 0, id="header"),
        pytest.param(flip(".bmq_qlist", 104), "qlist-mismatch", ".bmq_qlist", 36, id="queue key"),
        pytest.param(flip(".bmq_csl", 60), "ledger-checksum", ".bmq_csl", 84, id="ledger"),
        pytest.param(cut(".bmq_journal", 10), "torn-tail", ".bmq_journal", 44 + 60 * 603, id="torn journal"),
        pytest.param(cut(".bmq_journal", 600), "data-tail", ".bmq_data", None, id="cut journal"),
        pytest.param(cut(".bmq_data", 100), "data-record", ".bmq_data", None, id="cut data"),
        pytest.param(cut(".bmq_qlist", 5), "qlist-record", ".bmq_qlist", None, id="cut qlist"),
        pytest.param(remove(".bmq_data"), "set-incomplete", ".bmq_data", 0, id="no data"),
        pytest.param(remove(".bmq_journal"), "set-incomplete", ".bmq_journal", 0, id="no journal"),
        pytest.param(empty(".bmq_journal"), "header", ".bmq_journal", 0, id="empty journal"),
        pytest.param(empty(".bmq_data"), "header", ".bmq_data", 0, id="empty data"),
        pytest.param(empty(".bmq_csl"), "header", ".bmq_csl", 0, id="empty ledger"),
    ],
)
def test_damage_is_found_and_placed(
    run: Run, copy: Path, damage: Damage, code: str, extension: str, offset: int | None
) -> None:
    damage(copy)
    outcome = run("validate", "--json", copy)
    found = report(outcome)
    matching = [f for f in found["faults"] if f["code"] == code and f["file"].endswith(extension)]
    assert matching
    assert offset is None or matching[0]["offset"] == offset
    assert matching[0]["advice"]
    assert outcome.code == (1 if found["errors"] else 0)
    in_words = run("validate", copy)
    assert in_words.code == outcome.code
    assert code in in_words.out
    assert matching[0]["advice"].split()[0] in in_words.out


def test_warnings_count_only_if_wanted(run: Run, copy: Path) -> None:
    cut(".bmq_journal", 10)(copy)
    assert run("validate", copy).code == 0
    assert run("validate", "--strict", copy).code == 1
    found = report(run("validate", "--json", copy))
    assert (found["errors"], found["warnings"]) == (0, 1)


def test_a_store_without_any_qlist(run: Run, copy: Path) -> None:
    """A broker may run without QLIST files: then none is missing, and sync points state no size."""
    remove(".bmq_qlist")(copy)
    (fault,) = report(run("validate", "--json", copy))["faults"]
    assert (fault["code"], fault["file"]) == ("set-incomplete", only(copy, ".bmq_journal").stem + ".bmq_qlist")
    assert {run("summary", copy).code, run("queues", copy).code, run("dump", copy).code} == {1}
    state_no_qlist(only(copy, ".bmq_journal"))
    found = report(run("validate", "--json", copy))
    assert (found["faults"], len(found["files"])) == ([], 3)
    assert {run("summary", copy).code, run("queues", copy).code, run("dump", copy).code} == {0}


def state_no_qlist(journal: Path) -> None:
    """Have the sync points of a journal state that there is no QLIST."""
    content = bytearray(journal.read_bytes())
    first = open_file(content, FileType.JOURNAL).first_record_offset
    for at in range(first, len(content) - JOURNAL_RECORD_SIZE + 1, JOURNAL_RECORD_SIZE):
        raw = bytes(content[at : at + JOURNAL_RECORD_SIZE])
        if any(raw) and isinstance(record := decode_record(raw), JournalOpRecord):
            content[at : at + JOURNAL_RECORD_SIZE] = JOURNAL_OP_RECORD.pack(record._replace(qlist_file_offset_words=0))
    journal.write_bytes(content)


def test_a_set_that_lacks_its_qlist(run: Run, copy: Path) -> None:
    for kind in (FileType.DATA, FileType.JOURNAL):
        (copy / f"bmq_1.20261121_051104{kind.extension}").write_bytes(initial_bytes(kind, 1))
    (fault,) = report(run("validate", "--json", copy))["faults"]
    assert (fault["code"], fault["file"]) == ("set-incomplete", "bmq_1.20261121_051104.bmq_qlist")


def test_limit(run: Run, copy: Path) -> None:
    file = only(copy, ".bmq_journal")
    content = bytearray(file.read_bytes())
    for index in range(10, 60):
        content[44 + index * 60 + 56] ^= 1
    file.write_bytes(content)
    found = report(run("validate", "--json", "--limit", 3, copy))
    assert len(found["faults"]) == 3
    assert found["errors"] >= 50
    in_words = run("validate", "--limit", 3, copy)
    assert f"{found['errors'] - 3} more faults are not shown" in in_words.out


def test_there_must_be_a_store(run: Run, tmp_path: Path) -> None:
    outcome = run("validate", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "holds no files of a BlazingMQ store" in outcome.err
    assert run("validate", tmp_path / "none").code == 2


@pytest.mark.parametrize("command", ["dump", "validate"])
def test_help_has_examples(run: Run, command: str) -> None:
    outcome = run(command, "--help")
    assert outcome.code == 0
    assert f"bmqctl journal {command} " in outcome.out
    assert "Exit codes" in outcome.out


class Measured(FileSource):
    """Remembers how much of which file was asked for at once."""

    largest: ClassVar[dict[str, int]] = {}

    def read(self, offset: int, size: int) -> memoryview:
        found = super().read(offset, size)
        self.largest[self.path.suffix] = max(len(found), self.largest.get(self.path.suffix, 0))
        return found


@pytest.mark.slow
def test_no_large_file_is_read_as_a_whole(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of a chunk, a DATA file of a window, or of one message if that is longer."""
    payload = bytes(1_000).hex()
    lines = [{"type": "MESSAGE", "queue_uri": "bmq://domain/queue", "payload_hex": payload}] * 9_000
    lines.append({**lines[0], "payload_hex": bytes(9 << 20).hex()})
    build_store(map(json.dumps, lines), tmp_path, 1_795_237_864)
    monkeypatch.setattr("bmqctl.stores.blazingmq.read.check.FileSource", Measured)
    monkeypatch.setattr("formats.bmq.stores.recover.CHUNK_RECORDS", 1 << 10)
    outcome = run("validate", "--strict", tmp_path)
    assert outcome.code == 0, outcome.out
    assert only(tmp_path, ".bmq_data").stat().st_size > 18_000_000
    assert Measured.largest[".bmq_journal"] == 60 << 10
    assert Measured.largest[".bmq_data"] == 4 << 20


def test_a_long_message_is_checked_to_its_end(run: Run, tmp_path: Path) -> None:
    line = {"type": "MESSAGE", "queue_uri": "bmq://domain/queue", "payload_hex": bytes(9 << 20).hex()}
    build_store([json.dumps(line)], tmp_path, 1_795_237_864)
    data = only(tmp_path, ".bmq_data")
    size = data.stat().st_size
    for offset, code in ((60, "payload-checksum"), (size - 10, "payload-checksum"), (size - 2, "reserved-not-zero")):
        flip(".bmq_data", offset)(tmp_path)
        (fault,) = report(run("validate", "--json", tmp_path))["faults"]
        assert fault["code"] == code
        flip(".bmq_data", offset)(tmp_path)
    assert report(run("validate", "--json", tmp_path))["faults"] == []


def test_a_preallocated_store_is_not_read_where_nothing_is(run: Run, copy: Path) -> None:
    """Files of the sizes that a broker may give them: 16 GiB of journal, 32 GiB of data, all but some KiB holes."""
    for extension, size in ((".bmq_journal", 16 << 30), (".bmq_data", 32 << 30), (".bmq_qlist", 1 << 30)):
        os.truncate(only(copy, extension), size)
    outcome = run("validate", "--strict", copy)
    assert (outcome.code, outcome.out) == (0, "0 errors and 0 warnings in 4 files with 604 journal records\n")


def test_faults_are_rows_for_spreadsheets(run: Run, golden: Golden, tmp_path: Path) -> None:
    store = Path(shutil.copytree(golden("single-clean"), tmp_path / "store"))
    with next(store.glob("*.bmq_data")).open("r+b") as file:
        file.write(b"?")
    whole = report(run("validate", "--json", store))
    assert whole["faults"]
    assert report(run("validate", "--output", "json", store)) == whole
    outcome = run("validate", "--output", "jsonl", store)
    assert outcome.code == 1
    assert [json.loads(line) for line in outcome.out.splitlines()] == whole["faults"]
    rows = list(csv.DictReader(io.StringIO(run("validate", "--output", "csv", store).out)))
    assert [row["code"] for row in rows] == [fault["code"] for fault in whole["faults"]]


def test_a_sound_store_has_a_line_of_names_only(run: Run, golden: Golden) -> None:
    outcome = run("validate", "--output", "csv", golden("single-clean"))
    assert outcome.code == 0
    (names,) = outcome.out.splitlines()
    assert {"severity", "file", "offset", "code", "reason"} <= set(names.split(","))
