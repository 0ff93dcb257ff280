"""Losses of a store of BlazingMQ: each command that reads it names them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bmqctl.pipeline.source.options import FileSets
from bmqctl.pipeline.source.partitions import find_lost_files
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.bmqctl.stores.blazingmq.losses_rig import QUEUE, store_of_two_partitions
from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., Outcome]
FIRST_RECORD: Final = 44
COMMANDS: Final = (("summary", "--json"), ("queues",), ("dump", "--output", "json-line"))


def test_a_whole_store_has_lost_nothing(run: Run, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    for words in COMMANDS:
        outcome = run(*words, tmp_path)
        assert (outcome.code, outcome.err) == (0, ""), words


def test_a_journal_that_is_missing_is_named_by_each_command(run: Run, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    (tmp_path / "bmq_1.20270115_080000.bmq_journal").unlink()
    for words in COMMANDS:
        outcome = run(*words, tmp_path)
        assert outcome.code == 1, words
        assert "bmq_1.20270115_080000.bmq_journal: is missing" in outcome.err, words


def test_a_data_file_that_is_missing_is_named_by_each_command(run: Run, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    (tmp_path / "bmq_1.20270115_080000.bmq_data").unlink()
    for words in COMMANDS:
        outcome = run(*words, tmp_path)
        assert (outcome.code, "bmq_1.20270115_080000.bmq_journal: has no DATA file" in outcome.err) == (1, True), words


def test_a_message_that_is_zeros_in_the_data_file_is_told_by_its_readers(run: Run, tmp_path: Path) -> None:
    """The manual says which command reads payloads: the others list what the journals have."""
    _, store = store_of_two_partitions(tmp_path)
    store.data[-40:] = bytes(40)
    store.save(tmp_path)
    assert run("validate", tmp_path).code == 1
    assert run("dump", "--payload", "auto", "--output", "json-line", tmp_path).code == 1
    for words in COMMANDS:
        assert run(*words, tmp_path).code == 0, words


def test_an_older_set_without_its_journal_is_not_missed(run: Run, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    data = tmp_path / "bmq_1.20270115_080000.bmq_data"
    (tmp_path / "bmq_1.20260115_080000.bmq_data").write_bytes(data.read_bytes())
    for words in COMMANDS:
        assert run(*words, tmp_path).code == 0, words


@pytest.mark.parametrize(
    ("begin", "content"),
    [(FIRST_RECORD + 3 * JOURNAL_RECORD_SIZE, b"\xff" * 200), (FIRST_RECORD + 2 * JOURNAL_RECORD_SIZE, bytes(180))],
)
def test_records_that_are_damaged_are_told_by_each_command(
    run: Run, tmp_path: Path, begin: int, content: bytes
) -> None:
    _, store = store_of_two_partitions(tmp_path)
    store.journal[begin : begin + len(content)] = content
    store.save(tmp_path)
    for words in COMMANDS:
        assert run(*words, tmp_path).code == 1, words
    found = json.loads(run("summary", "--json", tmp_path).out)
    lost = (
        -(-(begin - FIRST_RECORD + len(content)) // JOURNAL_RECORD_SIZE) - (begin - FIRST_RECORD) // JOURNAL_RECORD_SIZE
    )
    assert found["partitions"][1]["unreadable"] == lost
    assert f"{lost} places with {lost * JOURNAL_RECORD_SIZE} bytes are damaged" in run("queues", tmp_path).err


def test_headers_of_a_journal_and_names_of_queues_that_are_damaged(run: Run, tmp_path: Path) -> None:
    first, second = store_of_two_partitions(tmp_path)
    first.qlist[40:44] = b"\xff" * 4
    first.save(tmp_path)
    assert run("queues", tmp_path).code == 1
    assert "bmq_qlist" in run("queues", tmp_path).err
    first, second = store_of_two_partitions(tmp_path)
    second.journal[:4] = b"nope"
    second.save(tmp_path)
    assert run("queues", tmp_path).code == 1
    assert run("summary", tmp_path).code == 1


def test_a_journal_that_was_cut_at_its_end_is_no_damage(run: Run, tmp_path: Path) -> None:
    _, store = store_of_two_partitions(tmp_path)
    store.message(QUEUE, bytes(16))
    for cut in (1, 30, JOURNAL_RECORD_SIZE):
        store.save(tmp_path)
        path = tmp_path / "bmq_1.20270115_080000.bmq_journal"
        path.write_bytes(path.read_bytes()[:-cut])
        for words in COMMANDS:
            assert run(*words, tmp_path).code == 0, (cut, words)


@pytest.mark.parametrize("name", ["data", "qlist"])
def test_the_end_of_a_file_beside_the_journal_that_is_gone(name: str, run: Run, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    path = tmp_path / f"bmq_1.20270115_080000.bmq_{name}"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-8])
    told = f"bmq_{name}: ends at {size - 8}, and had {size} bytes"
    for words in COMMANDS:
        outcome = run(*words, tmp_path)
        assert (outcome.code, told in outcome.err) == (1, True), outcome
    assert told in find_lost_files([str(tmp_path)], FileSets.CURRENT).words()
