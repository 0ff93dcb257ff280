"""Ranges of logs: sound beginnings, and what one replica lacks filled from another."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.pipeline.reading import read_task, tables_of
from bmqctl.pipeline.rocketmq.brokers import limit_of
from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.rocketmq.read.files import OFFSET_MAX
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record, encode_record
from formats.rocketmq.flags import SystemFlag
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.rocketmq.queued import numbered, write_queues
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, V6, Written, message, write_log

OFFSETS = {"table": "messages", "columns": "offset"}


def offsets(*roots: Path, **options: str) -> list[int]:
    return [row["offset"] for row in read_rows(*roots, filters=(), **{**OFFSETS, **options})]


def forged(root: Path, number: int) -> Written:
    """A log of a message whose body is full of records that say to be where they are, and of others around it."""
    before = [message(n) for n in range(40)]
    at = sum(len(encode_record(each)) for each in before)
    body, body_at = bytearray(), at + 88
    for n in range(number):
        fake = message(1000 + n, body_at + len(body), body=b"forged", topic="forged")
        body += encode_record(fake)
    after = [message(41 + n) for n in range(40)]
    return write_log(root, numbered([*before, message(40, body=bytes(body)), *after]))


@pytest.mark.parametrize("has_queues", [False, True])
def test_a_body_full_of_records_gives_none(tmp_path: Path, has_queues: bool, small_splits: None) -> None:
    written = forged(tmp_path, 30)
    if has_queues:
        write_queues(tmp_path, written.records)
    rows = read_rows(tmp_path, table="messages", recordsPerPartition="1")
    assert sorted(row["offset"] for row in rows) == written.offsets
    assert "forged" not in {row["topic"] for row in rows}
    # The body does look like records to who begins inside it.
    body = bytes(written.records[40].body)
    assert b"\xda\xa3\x20\xa7" in body


def test_a_consume_queue_that_names_a_forged_record_is_not_believed(tmp_path: Path, small_splits: None) -> None:
    written = forged(tmp_path, 30)
    outer = written.records[40]
    fakes = [message(1000)._replace(physical_offset=outer.physical_offset + 88 + 300 * n) for n in range(30)]
    write_queues(tmp_path, numbered(each._replace(topic="orders", queue_id=9) for each in fakes))
    assert offsets(tmp_path, recordsPerPartition="1") == written.offsets


MANY = [
    *(message(n, body=b"x" * (n * 37 % 900)) for n in range(200)),
    message(200, born=V6, stored=V6),
    message(201, body=b"\xda\xa3\x20\xa7" * 50),
    *(message(202 + n, body=b"y" * n) for n in range(400)),
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Written]:
    """Two logs of the same messages, the latter with consume queues; only to be read."""
    logs = {has_queues: write_log(tmp_path_factory.mktemp("log"), numbered(MANY)) for has_queues in (False, True)}
    write_queues(logs[True].root, logs[True].records)
    return logs


@given(size=st.integers(1, 40), has_queues=st.booleans())
def test_each_split_reads_its_own_records(many: dict[bool, Written], size: int, has_queues: bool) -> None:
    written = many[has_queues]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bmqctl.pipeline.rocketmq.plan._SPLIT_BYTES_MIN", 1)
        assert offsets(written.root, recordsPerPartition=str(size)) == written.offsets


def replicas(tmp_path: Path, messages: Sequence[Record] = MANY) -> tuple[Written, Written]:
    one, two = (write_log(tmp_path / name, numbered(messages)) for name in ("one", "two"))
    assert one.offsets == two.offsets
    return one, two


def test_a_replica_that_is_behind_or_damaged_is_filled_from_another(tmp_path: Path, small_splits: None) -> None:
    one, two = replicas(tmp_path)
    for number in (3, 4, 77, 300):
        one.overwrite(one.offsets[number], b"rot!")
    for number in (9, 310):
        two.overwrite(two.offsets[number], b"rot!")
    behind = one.offsets[-120]
    two.overwrite(behind, bytes(FILE_BYTES - behind % FILE_BYTES))
    for size in ("1", "7", "1000000"):
        for order in ((one, two), (two, one)):
            found = offsets(*(each.root for each in order), recordsPerPartition=size)
            assert sorted(found) == one.offsets
    alone = offsets(one.root)
    assert alone == [offset for n, offset in enumerate(one.offsets) if n not in (3, 4, 77, 300)]


def test_messages_that_no_replica_has_are_left_out_or_end_the_job(tmp_path: Path, small_splits: None) -> None:
    one, two = replicas(tmp_path)
    one.overwrite(one.offsets[5], b"rot!")
    assert sorted(offsets(one.root, two.root, mode="failfast")) == one.offsets
    two.overwrite(two.offsets[5], b"rot!")
    assert sorted(offsets(one.root, two.root)) == one.offsets[:5] + one.offsets[6:]
    for size in ("1", "1000000"):
        with pytest.raises(StoreError, match=f"no record at offset {one.offsets[5]} of the commit log"):
            offsets(one.root, two.root, mode="failfast", recordsPerPartition=size)


def test_faults_are_those_of_each_store(tmp_path: Path) -> None:
    one, two = replicas(tmp_path)
    for each in (one, two):
        write_queues(each.root, each.records)
    assert not [row for row in read_rows(one.root, two.root, table="faults") if row["code"] == "body-checksum"]
    rotten = one.records[50].physical_offset
    one.overwrite(rotten + 88, b"Z")
    rows = [row for row in read_rows(one.root, two.root, table="faults") if row["code"] == "body-checksum"]
    assert [(row["store"], row["broker"], row["severity"]) for row in rows] == [(str(one.root), "one", "error")]
    assert rows[0]["file"].startswith("commitlog/")
    assert rows[0]["advice"]


def test_a_file_that_a_replica_has_deleted_is_read_from_another(tmp_path: Path) -> None:
    one, two = replicas(tmp_path)
    two.path(0).unlink()
    assert sorted(offsets(two.root, one.root)) == one.offsets
    one.path(FILE_BYTES).unlink()
    assert sorted(offsets(two.root, one.root)) == one.offsets
    one.path(0).unlink()
    assert sorted(offsets(two.root, one.root)) == [offset for offset in one.offsets if offset >= FILE_BYTES]


def test_a_file_in_the_middle_without_anything_ends_the_job(tmp_path: Path) -> None:
    one, two = replicas(tmp_path)
    middle = one.path(FILE_BYTES)
    middle.write_bytes(bytes(FILE_BYTES))
    left = [offset for offset in one.offsets if not FILE_BYTES <= offset < 2 * FILE_BYTES]
    assert offsets(one.root) == left
    assert sorted(offsets(one.root, two.root, mode="failfast")) == one.offsets
    for _ in range(2):
        with pytest.raises(StoreError, match=r"holds no record|has nothing from offset|was never written"):
            offsets(one.root, mode="failfast")
        middle.unlink(missing_ok=True)
    assert offsets(one.root) == left


def test_rotten_bodies_are_taken_from_another_replica(tmp_path: Path) -> None:
    one, two = replicas(tmp_path)
    rotten = one.records[50]
    at = rotten.physical_offset + 88
    one.overwrite(at, b"Z")
    alone = {row["offset"]: row for row in read_rows(one.root, table="payloads")}
    assert alone[rotten.physical_offset]["payload"] is None
    assert "Record.body_crc" in alone[rotten.physical_offset]["fault"]
    with pytest.raises(StoreError, match=f"the message at offset {rotten.physical_offset}"):
        read_rows(one.root, table="payloads", mode="failfast")
    both = {row["offset"]: row for row in read_rows(one.root, two.root, table="payloads", mode="failfast")}
    assert {offset: row["payload"] for offset, row in both.items()} == {
        each.physical_offset: bytes(each.body) for each in one.records
    }


def test_bodies_that_cannot_be_decompressed_say_so(tmp_path: Path) -> None:
    plain = b"text " * 1000
    zipped = int(SystemFlag.COMPRESSED)
    written = write_log(
        tmp_path,
        [
            message(0, body=zlib.compress(plain), flags=zipped),
            message(1, body=b"no stream", flags=zipped),
            message(2, body=zlib.compress(plain), flags=zipped | 7 << 8),
            message(3, body=b""),
        ],
    )
    rows = read_rows(tmp_path, table="payloads")
    assert [row["payload"] for row in rows] == [plain, None, None, b""]
    assert [row["compression"] for row in rows] == ["zlib", "zlib", "unknown", "none"]
    assert [row["fault"] is None for row in rows] == [True, False, False, True]
    assert len(written.records) == len(rows)


def test_large_bodies_make_small_batches(tmp_path: Path) -> None:
    zipped = zlib.compress(bytes(9 << 20))
    write_log(tmp_path, [message(n, body=zipped, flags=int(SystemFlag.COMPRESSED)) for n in range(6)])
    read = ReadOptions.parse({"path": str(tmp_path), "table": "payloads", "columns": "payload"})
    (part,) = tables_of(read.paths).plan(read)
    batches = [
        [len(body) for body in batch.column("payload").to_pylist()]
        for batch in read_task(part, read, tables_of(read.paths).columns(read))
    ]
    assert batches == [[9 << 20] * 2] * 3


def test_the_memory_of_a_split_does_not_grow_with_it(tmp_path: Path) -> None:
    """Read one split of each log, its batches one after the other."""

    def peak(root: Path) -> int:
        read = ReadOptions.parse({"path": str(root), "table": "payloads", "recordsPerPartition": "1000000"})
        schema = tables_of(read.paths).columns(read)
        (part,) = tables_of(read.paths).plan(read)
        tracemalloc.start()
        try:
            arrow = max(batch.nbytes and pa.total_allocated_bytes() for batch in read_task(part, read, schema))
            return int(arrow) + tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    body = bytes(60_000)
    small, large = (
        write_log(tmp_path / str(count), [message(n, body=body) for n in range(count)], file_bytes=1 << 22).root
        for count in (400, 1200)
    )
    assert peak(large) < 1.3 * peak(small)


EPOCHS = [
    ([], [(1, 0)], OFFSET_MAX),
    ([(1, 0)], [(1, 0)], OFFSET_MAX),
    ([(1, 0)], [(1, 0), (5, 1305)], 1305),
    ([(1, 0), (5, 1305)], [(1, 0), (5, 1305)], OFFSET_MAX),
    ([(1, 0), (3, 900)], [(1, 0), (5, 1305)], 900),
    ([(1, 0), (2, 400), (3, 900)], [(1, 0), (2, 400), (5, 700)], 700),
    ([(1, 0), (2, 400)], [(6, 5000), (7, 6000)], 5000),
    ([(6, 100)], [(5, 0), (7, 200)], 0),
]


@pytest.mark.parametrize(("epochs", "leading", "expected"), EPOCHS)
def test_logs_part_where_their_epochs_do(
    epochs: list[tuple[int, int]], leading: list[tuple[int, int]], expected: int
) -> None:
    assert limit_of([EpochEntry(*each) for each in epochs], [EpochEntry(*each) for each in leading]) == expected


def test_brokers_of_one_name_with_other_records_are_refused(tmp_path: Path) -> None:
    for name, first in (("one", 0), ("two", 500)):
        written = write_log(tmp_path / name, [message(first + n) for n in range(20)])
        (written.root / "brokerIdentity").write_text(f"cluster#broker-a#{first + 1}")
    with pytest.raises(StoreError, match="stores of two clusters"):
        offsets(tmp_path / "one", tmp_path / "two")


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    for table in ("messages", "payloads", "groups", "topics", "queues"):
        assert read_rows(tmp_path, table=table) == []
    (tmp_path / "commitlog" / offset_name(0)).write_bytes(bytes(FILE_BYTES))
    assert offsets(tmp_path, mode="failfast") == []
