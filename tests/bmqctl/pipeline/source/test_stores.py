from __future__ import annotations

from pathlib import Path

from bmqctl.pipeline.source.options import FileSets
from bmqctl.pipeline.source.partitions import Journal, find_journals
from bmqctl.pipeline.source.stores import find_ledgers
from formats.bmq.disk.journal import SyncPointType
from tests.bmqctl.pipeline.written import WrittenStore


def find(store: Path) -> list[Journal]:
    """Return the journals that can be opened."""
    return [found for found in find_journals([str(store)], FileSets.CURRENT) if isinstance(found, Journal)]


def journal_times(journals: list[Journal]) -> list[tuple[int, str]]:
    return [(journal.partition_id, Path(journal.path).name.split(".")[1]) for journal in journals]


def test_partitions_are_found_by_number(tmp_path: Path) -> None:
    for partition_id in (10, 2):
        written = WrittenStore(partition_id)
        written.sync_point()
        written.save(tmp_path)
    partitions = find(tmp_path)
    assert [partition.partition_id for partition in partitions] == [2, 10]
    assert [partition.record_count for partition in partitions] == [1, 1]
    assert partitions[0].qlist == str(tmp_path / "bmq_2.20270115_080000.bmq_qlist")


def test_a_store_without_qlist_can_be_read(tmp_path: Path) -> None:
    WrittenStore().save(tmp_path)
    (tmp_path / "bmq_0.20270115_080000.bmq_qlist").unlink()
    assert find(tmp_path)[0].qlist is None


def test_the_newest_file_set_is_read_once_its_rollover_is_complete(tmp_path: Path) -> None:
    old = WrittenStore(timestamp="20270115_080000")
    old.sync_point()
    old.save(tmp_path)
    new = WrittenStore(timestamp="20270116_080000")
    new.sync_point(SyncPointType.REGULAR)
    new.save(tmp_path)
    assert journal_times(find(tmp_path)) == [(0, "20270115_080000")]
    new.finish_rollover()
    new.save(tmp_path)
    assert journal_times(find(tmp_path)) == [(0, "20270116_080000")]


def test_a_torso_after_a_torso_is_passed_over_too(tmp_path: Path) -> None:
    whole = WrittenStore(timestamp="20270116_080000")
    whole.finish_rollover()
    whole.save(tmp_path)
    for timestamp in ("20270115_080000", "20270117_080000", "20270118_080000"):
        WrittenStore(timestamp=timestamp).save(tmp_path)
    assert journal_times(find(tmp_path)) == [(0, "20270116_080000")]


def test_a_newest_journal_that_cannot_be_opened_is_passed_over(tmp_path: Path) -> None:
    WrittenStore(timestamp="20270115_080000").save(tmp_path)
    WrittenStore(timestamp="20270116_080000").save(tmp_path)
    (tmp_path / "bmq_0.20270116_080000.bmq_journal").write_bytes(b"")
    assert journal_times(find(tmp_path)) == [(0, "20270115_080000")]


def test_a_file_set_without_its_data_is_no_candidate(tmp_path: Path) -> None:
    WrittenStore(timestamp="20270115_080000").save(tmp_path)
    torso = WrittenStore(timestamp="20270116_080000")
    torso.finish_rollover()
    torso.save(tmp_path)
    (tmp_path / "bmq_0.20270116_080000.bmq_data").unlink()
    assert journal_times(find(tmp_path)) == [(0, "20270115_080000")]


def test_ledgers_are_found_oldest_first(tmp_path: Path) -> None:
    names = ["bmq_csl_20270115_080000_0000000001.bmq_csl", "bmq_csl_20270116_080000_0000000002.bmq_csl"]
    for name in reversed(names):
        (tmp_path / name).touch()
    assert [path.name for path in find_ledgers(tmp_path)] == names
