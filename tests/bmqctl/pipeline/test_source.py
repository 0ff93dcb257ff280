from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bmqctl.pipeline.columns import RECORD_SCHEMA
from bmqctl.pipeline.source import RECORDS_PER_BATCH, RecordRange, StoreDataSource, split
from bmqctl.pipeline.stores import find_partitions
from tests.bmqctl.pipeline.written import WrittenStore


def offsets(ranges: list[RecordRange]) -> list[tuple[int, int]]:
    """(partition, offset) of every record that the ranges read."""
    return [
        (part.partition_id, offset + index * 60)
        for part in ranges
        for offset, count in part.batches()
        for index in range(count)
    ]


@pytest.mark.parametrize("records_per_range", [1, 2, 3, 5, 6, 1000])
def test_ranges_cover_every_record_once(tmp_path: Path, records_per_range: int) -> None:
    for partition_id, count in ((0, 5), (1, 0), (2, 3)):
        written = WrittenStore(partition_id)
        for _ in range(count):
            written.sync_point()
        written.save(tmp_path)
    ranges = split(find_partitions(tmp_path), records_per_range)
    assert all(1 <= part.count <= records_per_range for part in ranges)
    expected = [(0, 44 + index * 60) for index in range(5)] + [(2, 44 + index * 60) for index in range(3)]
    assert offsets(ranges) == expected


def test_a_range_is_read_in_batches() -> None:
    part = RecordRange(0, "journal", "data", 44, RECORDS_PER_BATCH + 1)
    assert [*part.batches()] == [(44, RECORDS_PER_BATCH), (44 + RECORDS_PER_BATCH * 60, 1)]


def test_the_reader_gives_batches_of_the_schema(golden: Callable[[str], Path]) -> None:
    source = StoreDataSource({"path": str(golden("single-crash")), "recordsPerPartition": "100"})
    assert [field.name for field in source.schema()] == RECORD_SCHEMA.names
    reader = source.reader(source.schema())
    parts = reader.partitions()
    assert len(parts) == 6
    batches = [batch for part in parts for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 532
    assert all(batch.schema == RECORD_SCHEMA for batch in batches)


def test_ranges_must_hold_something() -> None:
    source = StoreDataSource({"path": "store", "recordsPerPartition": "0"})
    with pytest.raises(ValueError, match="recordsPerPartition: 0 is below 1"):
        source.reader(source.schema())
