"""`bmqctl journal dump` by ids and keys: what the index has, what is read all the same, and damage of the index."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bmqctl.stores.blazingmq.dump.formats import DumpFormat
from bmqctl.stores.rocketmq.dump.dump import dump_log, look_up_wanted, make_sink
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.filters import LogFilters
from formats.rocketmq.files.index import INDEX_HEADER
from tests.bmqctl.stores.conftest import Outcome
from tests.golden.rocketmq.stores import read_back

Run = Callable[..., Outcome]

SLOTS, ENTRY_BYTES = 500, 20
ENTRIES_AT = INDEX_HEADER.size + 4 * SLOTS


def dumped(root: Path, filters: LogFilters, *, with_index: bool) -> list[dict[str, Any]]:
    store, out = open_store(root), io.BytesIO()
    sink = make_sink(DumpFormat.JSON_LINE, out, None)
    report = dump_log(store.log, filters, sink, index_files=store.index_files if with_index else ())
    return [*map(json.loads, out.getvalue().splitlines()), {"unseen": report.unseen}]


def wanted() -> list[LogFilters]:
    """Filters by id and by key, for some messages of each topic, and for what is not there."""
    found = []
    for number, row in enumerate(read_back().values()):
        topics = frozenset([row["topic"]])
        if number % 29 == 0 and row["properties"].get("UNIQ_KEY"):
            found.append(LogFilters(topics=topics, ids=frozenset([row["properties"]["UNIQ_KEY"]])))
        if number % 31 == 0 and row["properties"].get("KEYS"):
            found.append(LogFilters(topics=topics, keys=frozenset(row["properties"]["KEYS"].split(" ")[:1])))
    missing = LogFilters(topics=frozenset(["GOne"]), ids=frozenset(["AB" * 16]))
    return [*found, missing, LogFilters(topics=frozenset(["GOne", "GFifo"]), keys=frozenset(["none"]))]


def same_by_index(root: Path, some: list[LogFilters]) -> int:
    """Compare dumps with and without the index; return how many were answered with parts of the log left out."""
    store, used = open_store(root), 0
    for filters in some:
        found = look_up_wanted(store.log, store.index_files, filters)
        used += found is not None and bool(found.parts)
        assert dumped(root, filters, with_index=True) == dumped(root, filters, with_index=False)
    return used


def test_index_has_what_the_log_has(golden_store: Path) -> None:
    some = wanted()
    assert len(some) > 20
    assert same_by_index(golden_store, some) == len(some)
    store = open_store(golden_store)
    found = look_up_wanted(store.log, store.index_files, some[0])
    assert found is not None
    # All but the messages between the files of the index, and after its last message.
    assert sum(end - begin for begin, end in found.parts) > 0.9 * (found.parts[-1][1] - found.parts[0][0])


@pytest.mark.parametrize("damage", ["entry", "slot", "hash", "header", "missing", "cut", "other-log"])
def test_damaged_index_is_not_believed(golden_store: Path, tmp_path: Path, damage: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden_store, root)
    for number, path in enumerate(open_store(root).index_files):
        data = bytearray(path.read_bytes())
        if damage == "missing" and number % 2:
            path.unlink()
            continue
        for entry in range(1, 400):
            at = ENTRIES_AT + entry * ENTRY_BYTES
            if damage == "entry":
                data[at + 4 : at + 12] = b"\x7f" * 8
            elif damage == "hash":
                data[at : at + 4] = b"\xff" * 4
            elif damage == "other-log":
                data[at + 4 : at + 12] = (int.from_bytes(data[at + 4 : at + 12], "big") + 1).to_bytes(8, "big")
        if damage == "slot":
            data[INDEX_HEADER.size : ENTRIES_AT] = b"\x7f" * (4 * SLOTS)
        if damage == "header":
            data[: INDEX_HEADER.size] = b"\xff" * INDEX_HEADER.size
        path.write_bytes(data[:900] if damage == "cut" else data)
    used = same_by_index(root, wanted()[::4])
    assert bool(used) is (damage == "missing")


def test_offset_id_is_a_place(run: Run, golden_store: Path) -> None:
    row = list(read_back().values())[100]
    filters = LogFilters(ids=frozenset([row["offsetMsgId"]]))
    store = open_store(golden_store)
    found = look_up_wanted(store.log, (), filters)
    assert found is not None
    assert found.places == [row["commitLogOffset"]]
    assert same_by_index(golden_store, [filters]) == 1
    (line,) = run("dump", "--id", row["offsetMsgId"], golden_store).out.splitlines()
    assert json.loads(line)["offset_id"] == row["offsetMsgId"]
    # One that is none here is looked for as another id.
    assert look_up_wanted(store.log, (), LogFilters(ids=frozenset(["0A" * 16]))) is None


def test_ranges_and_keys_without_topics_are_read(golden_store: Path) -> None:
    store = open_store(golden_store)
    for filters in (
        LogFilters(keys=frozenset(["k"])),
        LogFilters(topics=frozenset(["GOne"]), keys=frozenset([""])),
        LogFilters(topics=frozenset(["GOne"]), keys=frozenset(["k"]), offset_gt=5),
    ):
        assert look_up_wanted(store.log, store.index_files, filters) is None
