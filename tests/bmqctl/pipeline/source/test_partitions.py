from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.plan import open_store, plan_partitions
from bmqctl.pipeline.source.stores import StoreError
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.numbers import RecordNumber
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.source.lifecycles import lifecycles
from tests.bmqctl.pipeline.written import WrittenStore
from tests.golden.archives import storage_records

FIRST = 44
Q = b"queue"


def part_of(into: Path, keep: Callable[[int], bool], timestamp: str = "20270115_080000") -> Path:
    """A replica of the store with every way to end, that has some of its records only."""
    store, _ = lifecycles()
    records = [store.journal[at : at + JOURNAL_RECORD_SIZE] for at in range(FIRST, len(store.journal), 60)]
    kept = (record for number, record in enumerate(records, 1) if keep(number))
    store.journal[FIRST:] = b"".join(kept)
    store.timestamp = timestamp
    return store.save(into)


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort rows by record number, without the places in files, which may differ between replicas."""
    places = ("offset", "journal_offset", "message_journal_offset")
    kept = [{name: value for name, value in row.items() if name not in places} for row in rows]
    return sorted(kept, key=lambda row: (row["sequence_number"], row.get("app_key") or ""))


def random_parts(seed: int) -> list[Callable[[int], bool]]:
    """Choose the records that each of three replicas has: together all of them."""
    noise = random.Random(seed)
    has = [[noise.random() < noise.choice((0.2, 0.9, 1)) for _ in range(200)] for _ in range(2)]
    begin = noise.randrange(1, 20)
    return [
        lambda number: has[0][number],
        lambda number: number >= begin and has[1][number],
        lambda number: number < begin or not (has[0][number] or has[1][number]),
    ]


@pytest.mark.parametrize("table", ["records", "messages", "confirms", "payloads"])
@pytest.mark.parametrize("seed", range(4))
def test_replicas_make_up_one_partition(tmp_path: Path, table: str, seed: int) -> None:
    whole = comparable(read_rows(lifecycles()[0].save(tmp_path / "whole"), table=table))
    for number, keep in enumerate(random_parts(seed)):
        part_of(tmp_path / f"node-{number}", keep)
    found = read_rows(tmp_path / "node-*", table=table, recordsPerPartition="7", tasks="2")
    assert comparable(found) == whole


def test_the_same_store_twice_counts_once(tmp_path: Path) -> None:
    store = lifecycles()[0].save(tmp_path / "a")
    lifecycles()[0].save(tmp_path / "b")
    assert read_rows(store, tmp_path / "b") == read_rows(store) == read_rows(store, store, f"{tmp_path}/[ab]")


def test_two_nodes_of_a_cluster_have_the_same_records(golden: Callable[[str], Path]) -> None:
    nodes = [golden("cluster-node0"), golden("cluster-node2")]
    rows = read_rows(*nodes)
    numbers = [(row["partition_id"], row["primary_lease_id"], row["sequence_number"]) for row in rows]
    printed = {
        (row["partition_id"], row["primary_lease_id"], row["sequence_number"])
        for node in nodes
        for row in read_rows(node)
    }
    assert sorted(numbers) == sorted(printed)
    assert len(rows) >= max(len(storage_records(node.name)) for node in nodes)


def test_file_sets_that_were_rolled_over_are_merged(tmp_path: Path) -> None:
    """The new set has what was alive when it was begun, and what came then; the old one the whole beginning."""
    whole = comparable(read_rows(lifecycles()[0].save(tmp_path / "whole"), table="messages"))
    part_of(tmp_path / "store", lambda number: number <= 30, "20270115_080000")
    part_of(tmp_path / "store", lambda number: number > 30 or number % 3 == 0, "20270115_090000")
    assert comparable(read_rows(tmp_path / "store", table="messages", fileSets="all")) == whole
    # Without a sync point that ends its rollover the newer set is a torso, and a broker takes the older.
    assert len(read_rows(tmp_path / "store")) == 30


def test_stores_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name, key in (("a", b"qqqqq"), ("b", b"rrrrr")):
        store = WrittenStore()
        for number in range(5):
            store.message(key, key * 3 + bytes([number]))
        store.save(tmp_path / name)
    with pytest.raises(StoreError, match="stores of two clusters"):
        read_rows(tmp_path / "a", tmp_path / "b")


def test_extents_tell_the_numbers_of_the_first_and_last_record(tmp_path: Path) -> None:
    store, _ = lifecycles()
    last = store.sequence_number
    store.journal += b"torn" * 15
    store.save(tmp_path)
    (extent,) = plan_partitions(ReadOptions.parse({"path": str(tmp_path)}))
    assert (extent.partition_id, extent.record_count) == (1, last)
    assert (extent.first, extent.last) == (RecordNumber(1, 1), RecordNumber(1, last))
    assert extent.journal == "bmq_1.20270115_080000.bmq_journal"
    empty = WrittenStore()
    empty.save(tmp_path / "empty")
    (extent,) = plan_partitions(ReadOptions.parse({"path": str(tmp_path / "empty")}))
    assert (extent.first, extent.last, extent.record_count) == (None, None, 0)
    assert read_rows(tmp_path / "empty") == read_rows(tmp_path / "empty", table="messages") == []


def test_a_journal_file_stands_for_its_file_set(tmp_path: Path) -> None:
    for partition_id in (0, 1):
        store = WrittenStore(partition_id)
        store.message(Q, bytes(16))
        store.save(tmp_path)
    (row,) = read_rows(f"{tmp_path}/bmq_1.*.bmq_journal")
    assert (row["partition_id"], row["payload_size"]) == (1, 7)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "no such file or directory"),
        ("*.bmq_journal", "nothing matches"),
        ("empty", "no journal"),
        ("file", "not a journal of a store"),
        (".", r"did you mean .*/node, or .*/\*\?"),
    ],
)
def test_path_that_is_no_store_is_refused_in_a_line(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no store")
    lifecycles()[0].save(tmp_path / "node")
    with pytest.raises(StoreError, match=said) as raised:
        open_store(ReadOptions.parse({"path": str(tmp_path / path)}))
    assert "\n" not in str(raised.value)
