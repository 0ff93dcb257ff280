"""Scan of a commit log: every record of the golden stores, both versions, all kinds of hosts, and damage."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.common.regular import read_into
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.read import scan as scan_module
from bmqctl.stores.rocketmq.read.files import log_files, open_store
from bmqctl.stores.rocketmq.read.records import LogRecords, search
from bmqctl.stores.rocketmq.read.scan import LogFault, LogScan, Loss
from formats.errors import FormatError
from formats.rocketmq.files.record import Blank, Magic, Record, decode_record, encode_blank, encode_record
from formats.rocketmq.flags import SystemFlag
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, V6, message, write_log
from tests.families import mostly_slow
from tests.golden.rocketmq.stores import STORES, records, unpack


def as_records(found: LogRecords) -> list[Record]:
    """The records, as `decode_record` gives them."""
    columns: list[list[Any]] = [
        [Magic(magic) for magic in found.front("magic").tolist()],
        *(found.front(name).tolist() for name in ("body_crc", "queue_id", "flag", "queue_offset", "physical_offset")),
        found.flags.tolist(),
        found.front("born_ms").tolist(),
        found.born_hosts,
        found.stored_ms.tolist(),
        found.store_hosts,
        found.reconsume_times.tolist(),
        found.prepared_transaction_offsets.tolist(),
        found.bodies(),
        [topic.decode() for topic in found.topics()],
        found.properties(),
    ]
    return [Record(*values) for values in zip(*columns, strict=True)]


def read(root: Path, begin: int | None = None, *, tail: bool = True) -> tuple[list[Record], list[LogFault], int]:
    scan = LogScan(log_files(root), begin, tail=tail)
    found, faults = [], []
    for chunk in scan.chunks():
        found += as_records(chunk.records)
        faults += chunk.faults
    return found, faults, scan.end


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "CHUNK_BYTES", 1000)


@pytest.mark.parametrize("name", mostly_slow(STORES, 2))
def test_golden_logs_are_read_as_by_the_codec(name: str, tmp_path: Path) -> None:
    for broker in unpack(name, tmp_path):
        expected = [record._replace(body=bytes(record.body)) for _, record in records(broker) if type(record) is Record]
        found, faults, _ = read(broker)
        assert found == expected
        assert expected
        assert not faults


MANY = [
    *(message(n) for n in range(300)),
    *(message(300 + n, born=V6) for n in range(3)),
    *(message(310 + n, stored=V6, version=Magic.V2) for n in range(3)),
    message(320, born=V6, stored=V6),
    message(321, body=b"\xda\xa3\x20\xa7" * 50),
    message(322, body=b"x" * 5000),
    message(323, version=Magic.V2, topic="t" * 300),
    *(message(330 + n, body=b"y" * n) for n in range(600)),
]


def test_versions_and_hosts_are_read_across_files_and_chunks(tmp_path: Path, small_chunks: None) -> None:
    written = write_log(tmp_path, MANY)
    assert len(list((tmp_path / "commitlog").iterdir())) > 2
    found, faults, end = read(tmp_path)
    assert found == written.records
    assert not faults
    assert end == written.offsets[-1] + len(encode_record(written.records[-1]))


def test_scan_from_inside_a_record_begins_with_the_next(tmp_path: Path, small_chunks: None) -> None:
    written = write_log(tmp_path, MANY)
    for number in (0, 5, 500):
        found, faults, _ = read(tmp_path, written.offsets[number] + 1)
        assert found == written.records[number + 1 :]
        assert not faults
        assert read(tmp_path, written.offsets[number])[0] == written.records[number:]


def test_damage_costs_the_records_that_it_touches(tmp_path: Path, small_chunks: None) -> None:
    written = write_log(tmp_path, MANY)
    offsets = written.offsets
    written.overwrite(offsets[10], b"\xff\xff\xff\xff")  # the size
    written.overwrite(offsets[20] + 4, b"\0")  # the magic number
    written.overwrite(offsets[30] + 35, b"\x01")  # the place
    written.overwrite(offsets[40] + 87, b"\x77")  # the size of the body
    written.overwrite(offsets[50], bytes(offsets[53] - offsets[50]))
    lost = {10, 20, 30, 40, 50, 51, 52}
    found, faults, _ = read(tmp_path)
    assert found == [record for number, record in enumerate(written.records) if number not in lost]
    assert [fault.offset for fault in faults] == [offsets[n] for n in (10, 20, 30, 40, 50)]
    assert [fault.offset + fault.size for fault in faults] == [offsets[n] for n in (11, 21, 31, 41, 53)]
    texts = [fault.text for fault in faults]
    assert texts[0].startswith("a record of 4294967295 bytes, of which ")
    assert texts[1] == "holds no record"
    assert texts[2] == f"a record that says to be at {offsets[30] - offsets[30] % 256 + 1}"
    assert texts[3] == f"a record of {offsets[41] - offsets[40]} bytes, whose parts fill another number"
    assert texts[4] == "was never written"


def test_record_whose_size_names_the_next_two_is_a_fault(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY[:40])
    both = written.offsets[12] - written.offsets[10]
    written.overwrite(written.offsets[10], both.to_bytes(4, "big"))
    found, faults, _ = read(tmp_path)
    assert found == written.records[:10] + written.records[11:]
    assert [fault.offset for fault in faults] == [written.offsets[10]]


def test_files_that_are_cut_or_missing(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY)
    first, second, third = sorted((tmp_path / "commitlog").iterdir())[:3]
    second.unlink()
    inside = [n for n, offset in enumerate(written.offsets) if FILE_BYTES <= offset < 2 * FILE_BYTES]
    found, faults, _ = read(tmp_path)
    assert found == written.records[: inside[0]] + written.records[inside[-1] + 1 :]
    assert faults == [LogFault(FILE_BYTES, FILE_BYTES, "the file is missing", Loss.MISSING)]
    for later in sorted((tmp_path / "commitlog").iterdir())[1:]:
        later.unlink()
    cut = written.offsets[100] + 56
    first.write_bytes(first.read_bytes()[:cut])
    found, faults, end = read(tmp_path)
    assert found == written.records[:100]
    size = len(encode_record(written.records[100]))
    text = f"a record of {size} bytes, of which 56 are left in the file"
    assert faults == [LogFault(written.offsets[100], 56, text, Loss.UNFINISHED)]
    assert end == written.offsets[100]
    assert read(tmp_path, tail=False) == (found, [], end)
    assert third not in {file.path for file in log_files(tmp_path)}


def test_cut_blank_tail_is_no_fault(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY)
    first, *others = sorted((tmp_path / "commitlog").iterdir())
    for other in others:
        other.unlink()
    count = sum(offset < FILE_BYTES for offset in written.offsets)
    blank_at = written.offsets[count - 1] + len(encode_record(written.records[count - 1]))
    first.write_bytes(first.read_bytes()[: blank_at + 8])
    assert read(tmp_path) == (written.records[:count], [], blank_at + 8)


def test_blank_that_ends_before_its_file_is_a_fault(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY[:40])
    size = written.offsets[21] - written.offsets[20]
    written.overwrite(written.offsets[20], encode_blank(size))
    found, faults, _ = read(tmp_path)
    assert found == written.records[:20] + written.records[21:]
    assert faults == [LogFault(written.offsets[20], size, "holds no record")]


def test_unwritten_rest_is_a_fault_in_front_of_another_file_only(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY)
    last_of_first = sum(offset < FILE_BYTES for offset in written.offsets) - 1
    blank_at = written.offsets[last_of_first] + len(encode_record(written.records[last_of_first]))
    written.overwrite(blank_at, bytes(8))
    found, faults, _ = read(tmp_path)
    assert found == written.records
    assert faults == [LogFault(blank_at, FILE_BYTES - blank_at, "was never written")]


def test_files_made_before_they_are_needed_are_no_fault(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY[:40])
    for number in (1, 2):
        written.path(number * FILE_BYTES).write_bytes(bytes(FILE_BYTES))
    found, faults, end = read(tmp_path)
    assert (found, faults) == (written.records, [])
    assert end == written.offsets[-1] + len(encode_record(written.records[-1]))


def test_torn_record_at_the_end_is_told_without_the_zeros_behind_it(tmp_path: Path, small_chunks: None) -> None:
    written = write_log(tmp_path, MANY[:40])
    end = read(tmp_path)[2]
    record = encode_record(message(40, end))
    torn = record[:70]
    written.overwrite(end, torn)
    found, faults, after = read(tmp_path)
    assert found == written.records
    text = f"a record of {len(record)} bytes, whose parts fill another number"
    assert faults == [LogFault(end, len(torn.rstrip(b"\0")), text, Loss.UNFINISHED)]
    assert after == end


def test_sizes_of_strangers_cost_no_memory(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    path = root / "commitlog" / f"{0:020d}"
    with path.open("wb") as file:
        for place in range(0, 20_000, 100):
            # In their places, and of sizes that the file has room for.
            front = encode_record(message(0, place))
            file.seek(place)
            file.write((200_000_000 - place).to_bytes(4, "big") + front[4:84] + b"\x0b\xeb\xc0\x00")
        file.truncate(1 << 31)
    tracemalloc.start()
    found, faults, _ = read(root)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not found
    assert [fault.offset for fault in faults] == [0]
    assert most < 8 << 20


def test_record_longer_than_a_chunk_is_read(tmp_path: Path, small_chunks: None) -> None:
    written = write_log(tmp_path, [message(n, body=b"z" * n) for n in (20_000, 10, 900, 880, 30_000)])
    assert read(tmp_path)[0] == written.records


def test_file_that_vanishes_is_told(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY)
    scan = LogScan(log_files(tmp_path))
    written.path(0).unlink()
    faults = [fault for chunk in scan.chunks() for fault in chunk.faults]
    assert faults == [LogFault(0, FILE_BYTES, "the file has vanished", Loss.MISSING)]


def test_record_inside_a_body_does_not_count(tmp_path: Path) -> None:
    inner_at = 88
    inner = encode_record(message(7, inner_at))
    written = write_log(tmp_path, [message(1, body=inner), message(2)])
    assert read(tmp_path)[0] == written.records


def test_store_is_known_by_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "store"
    written = write_log(root, MANY[:3])
    queue = root / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(20))
    (root / "index").mkdir()
    (root / "index" / "20261122040452889").write_bytes(b"")
    for path in (root, written.path(0), root / "commitlog", queue, queue / f"{0:020d}"):
        store = open_store(path)
        assert store.root == root
        assert [queue.topic for queue in store.queues()] == ["orders"]
        assert len(store.index_files) == 1
    with pytest.raises(NotAStoreFile, match="is no RocketMQ store"):
        open_store(tmp_path)
    other = root / "bmq"
    other.mkdir()
    with pytest.raises(NotAStoreFile, match="is no RocketMQ store"):
        open_store(other)


def test_file_named_beyond_all_offsets_is_left_out(tmp_path: Path) -> None:
    written = write_log(tmp_path, MANY[:3])
    (tmp_path / "commitlog" / ("9" * 20)).write_bytes(b"x")
    assert read(tmp_path)[0] == written.records


RECORDS = st.builds(
    message,
    st.integers(0, 99),
    body=st.binary(max_size=60) | st.just(b"\xda\xa3\x20\xa7\xda\xa3\x20\xab"),
    version=st.sampled_from([Magic.V1, Magic.V2]),
    born=st.sampled_from(["127.0.0.1", V6]),
    stored=st.sampled_from(["127.0.0.1", V6]),
    topic=st.text("ab", max_size=127),
)


@given(st.lists(RECORDS, max_size=6), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=3))
def test_search_finds_what_the_codec_reads(messages: list[Record], changes: list[tuple[int, int]]) -> None:
    data = bytearray()
    for each in messages:
        data += encode_record(each._replace(physical_offset=len(data)))
    for at, value in changes:
        if data:
            data[at % len(data)] = value
    found = search(memoryview(data), 0, len(data)).records
    expected, at = [], 0
    while at < len(data):
        try:
            record = decode_record(data, at)
        except FormatError:
            record = None
        if isinstance(record, Blank) or record is None or record.physical_offset != at:
            at += 1
            continue
        expected.append(record._replace(body=bytes(record.body)))
        at += int.from_bytes(data[at : at + 4], "big")
    texts = [bytes(topic) for topic in found.topics()]
    if all(text.isascii() for text in texts):
        assert as_records(found) == expected


@given(st.lists(RECORDS, min_size=1, max_size=30), st.integers(100, 500))
def test_chunks_of_any_size_give_the_same(messages: list[Record], size: int) -> None:
    data = bytearray()
    for each in messages:
        data += encode_record(each._replace(physical_offset=len(data)))
    whole = search(memoryview(data), 0, len(data))
    piece = search(memoryview(data)[:size], 0, len(data))
    ends = whole.records.ends
    count = int((ends <= size).sum())
    assert as_records(piece.records) == as_records(whole.records)[:count]
    fronts = [start for start in whole.records.starts[count:].tolist() if start + 88 <= size]
    assert piece.cut[:1] == fronts[:1]


def test_flags_of_ipv6_in_a_record_too_short_for_it_are_a_fault() -> None:
    record = encode_record(message(0, body=b"", topic=""))
    flags = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6).to_bytes(4, "big")
    # Without its properties it has 91 bytes.
    data = (91).to_bytes(4, "big") + record[4:36] + flags + record[40:89] + b"\0\0"
    assert not len(search(memoryview(data), 0, len(data)).records)


@pytest.mark.parametrize("hidden", [4096, 40_000])
def test_bytes_written_while_later_ones_were_read_are_no_damage(
    hidden: int, tmp_path: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read may return a part of the file as it was, and a later part as it is."""
    written = write_log(tmp_path, [message(n) for n in range(300)])
    (path,) = (tmp_path / "commitlog").iterdir()
    content = path.read_bytes()
    begin = written.offsets[50]
    path.write_bytes(content[:begin] + bytes(hidden) + content[begin + hidden :])

    def read_and_write(descriptor: int, buffer: Any, offset: int) -> int:
        read = read_into(descriptor, buffer, offset)
        if offset + read > begin + hidden:
            path.write_bytes(content)
        return read

    monkeypatch.setattr(scan_module, "read_into", read_and_write)
    found, faults, _ = read(tmp_path)
    assert (found, faults) == (written.records, [])
