"""Records of another broker's log: the golden ones byte for byte, any pieces, and what does not belong there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.faults import Inconsistent
from broker.rocketmq.store.copying import RECORD_BYTES_MAX, copy_records
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from formats.errors import FormatError
from formats.rocketmq.fast.plain_columns import MANY, PlainColumns, read_columns
from formats.rocketmq.files.record import Magic, Record, decode_record, encode_blank, encode_record
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.copying_rig import filled, kept, log_bytes, open_at
from tests.broker.rocketmq.store.message_store_rig import GOLDEN, SMALL, bodies, due_ms, make_message
from tests.families import examples
from tests.golden.rocketmq.stores import records, unpack


def copy_all(store: MessageStore, data: bytes, offset: int, piece: int) -> None:
    """Copy in pieces, keeping the front of a record until the rest of it comes, as a slave does."""
    held = b""
    for at in range(0, len(data), piece):
        held += data[at : at + piece]
        used = copy_records(store, offset, memoryview(held))
        held, offset = held[used:], offset + used
    assert not held


def test_golden_log_is_copied_byte_for_byte_with_its_queues(tmp_path: Path) -> None:
    (broker,) = unpack("store", tmp_path)
    names = sorted(path.name for path in (broker / "commitlog").iterdir())
    data = b"".join((broker / "commitlog" / name).read_bytes() for name in names)
    *_, (last, record) = records(broker)
    assert isinstance(record, Record)
    end = last + len(encode_record(record))
    root = MemoryFolder(chunk=4096)
    store = open_store(root, GOLDEN, lambda ms: f"{ms:017d}", due_ms)
    copy_all(store, data[:end], 0, 32 << 10)
    assert (len(names), store.log.end) == (6, end)
    queues = 0
    for path, written in kept(root).items():
        # After the last entry of a queue the original keeps nothing, or older contents.
        size = len(written.rstrip(b"\0"))
        assert written[:size] == (broker / path).read_bytes()[:size], path
        queues += path.startswith("consumequeue")
    assert queues > 20


@given(st.integers(1, 700))
@settings(max_examples=25, deadline=None)
def test_any_pieces_make_the_same_store(piece: int) -> None:
    master_root, master = filled()
    data = log_bytes(master)
    root = MemoryFolder(chunk=64)
    slave = open_at(root)
    copy_all(slave, data, 0, piece)
    assert slave.log.end == master.log.end
    assert kept(root) == kept(master_root)
    assert [bodies(slave, queue_id=number) for number in (0, 1)] == [list(range(0, 30, 2)), list(range(1, 30, 2))]
    assert list(slave.index.find("topic", "key1", 0, 1 << 40, 64)) == list(
        master.index.find("topic", "key1", 0, 1 << 40, 64)
    )


def test_copy_begins_where_the_other_log_begins() -> None:
    """A new slave may get less than the whole log: its queues begin where their first messages belong."""
    _, master = filled()
    slave = open_at(MemoryFolder(chunk=64))
    copy_all(slave, log_bytes(master, 1024), 1024, 100)
    assert (slave.log.begin, slave.log.end) == (1024, master.log.end)
    first = next(number for number in range(30) if master.log.read(1024).record.body == make_message(number).body)
    queue = slave.queues["topic", first % 2]
    assert (queue.begin, queue.end) == (first // 2, 15)


def test_copy_is_opened_again_after_a_crash() -> None:
    _, master = filled()
    root = MemoryFolder(chunk=64)
    slave = open_at(root)
    data = log_bytes(master)
    used = copy_records(slave, 0, memoryview(data[:2500]))
    root = root.after_crash()
    slave = open_at(root)
    assert slave.log.end == used
    copy_all(slave, data[used:], used, 333)
    assert log_bytes(slave) == data


def test_arrived_messages_are_reported() -> None:
    _, master = filled(3)
    slave = open_at(MemoryFolder(chunk=64))
    told: list[tuple[str, int, int, int]] = []
    copy_records(slave, 0, memoryview(log_bytes(master)), lambda *arrived: told.append(arrived))
    assert [each[:3] for each in told] == [("topic", 0, 2), ("topic", 1, 1)]
    assert sum(size for *_, size in told) == master.log.end


def test_queue_that_was_removed_at_the_master_begins_anew() -> None:
    _, master = filled(4)
    slave = open_at(MemoryFolder(chunk=64))
    copy_all(slave, log_bytes(master), 0, 100)
    master.delete_topic("topic")
    begin = master.log.end
    Writer(master).put(make_message(7), 2000)
    copy_all(slave, log_bytes(master, begin), begin, 100)
    assert bodies(slave) == [7]
    assert bodies(slave, queue_id=1) == [1, 3]


def test_pieces_elsewhere_are_refused() -> None:
    _, master = filled(4)
    data = log_bytes(master)
    slave = open_at(MemoryFolder(chunk=64))
    used = copy_records(slave, 0, memoryview(data))
    for offset in (0, used - 1, used + 1):
        with pytest.raises(FormatError, match="is not the end of this log"):
            copy_records(slave, offset, memoryview(data))


def test_new_log_begins_with_a_file() -> None:
    _, master = filled(4)
    data = log_bytes(master)
    slave = open_at(MemoryFolder(chunk=64))
    first = int.from_bytes(data[:4], "big")
    with pytest.raises(FormatError, match="is not the start of a file"):
        copy_records(slave, first, memoryview(data[first:]))
    assert slave.log.end == 0


def changed(change: Callable[[Record], Record]) -> bytes:
    _, master = filled(1)
    record = master.log.read(0).record
    return encode_record(change(record))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(lambda record: record._replace(body=b"other")), "the checksum or the own offset"),
        (changed(lambda record: record._replace(physical_offset=1)), "the checksum or the own offset"),
        (bytes(8), "no record at offset 0 has 0 bytes"),
        ((-1).to_bytes(4, "big", signed=True) + bytes(4), "has -1 bytes"),
        ((RECORD_BYTES_MAX + 1).to_bytes(4, "big") + bytes(4), "no record at offset 0"),
        ((100).to_bytes(4, "big") + b"abcd", "is no record's magic number"),
        (encode_blank(1000) + bytes(992), "a record of 1000 bytes at offset 0 does not belong into a file of 1024"),
        (encode_blank(2048) + bytes(2040), "give both brokers the same mappedFileSizeCommitLog"),
    ],
)
def test_impossible_record_is_refused(data: bytes, reason: str) -> None:
    root = MemoryFolder(chunk=64)
    slave = open_at(root)
    with pytest.raises(FormatError, match=reason):
        copy_records(slave, 0, memoryview(data))
    assert slave.log.end == 0
    assert not kept(root)


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"topic": "../out"},
        {"topic": ".."},
        {"topic": ""},
        {"topic": "a\0b"},
        {"topic": "t" * 256, "version": Magic.V2},
        {"queue_id": -1},
        {"queue_offset": -1},
        {"queue_offset": 1 << 62},
    ],
)
def test_a_record_of_a_queue_that_cannot_be_is_in_the_log_and_in_no_queue(
    change: dict[str, Any], is_held: bool
) -> None:
    data = changed(lambda record: record._replace(**change))
    root = MemoryFolder(chunk=64)
    slave = open_at(root)
    if is_held:
        slave.hold_back()
    arrived: list[object] = []
    assert copy_records(slave, 0, memoryview(data), lambda *told: arrived.append(told)) == len(data)
    assert slave.queue_table.misplaced.count == 1
    following, begin = make_message(2), slave.log.end
    Writer(slave).put(following, 1001)
    slave.confirm(slave.log.end)
    assert [key for key, queue in slave.queues.items() if queue.end > 0] == [(following.topic, following.queue_id)]
    slave.close()
    again = open_at(root)
    assert log_bytes(again)[: len(data)] == data
    assert [entry.physical_offset for entry in again.get(following.topic, following.queue_id, 0, 9)] == [begin]


def test_record_that_fills_its_file_is_refused() -> None:
    """A record needs room for a blank one after it."""
    _, master = filled(1)
    record = master.log.read(0).record
    for more in range(1025):
        data = encode_record(record._replace(body=bytes(more), body_crc=0))
        if len(data) + 7 >= 1024:
            break
    slave = open_at(MemoryFolder(chunk=64))
    with pytest.raises(FormatError, match="does not belong into a file of 1024"):
        copy_records(slave, 0, memoryview(data))


def test_record_for_which_there_is_no_disk_is_not_taken() -> None:
    _, master = filled(4)
    data = log_bytes(master)
    root = MemoryFolder(chunk=64)
    slave = open_at(root)
    first = int.from_bytes(data[:4], "big")
    copy_records(slave, 0, memoryview(data[:first]))
    root.folder("commitlog").free = 0
    with pytest.raises(DiskFull):
        copy_records(slave, first, memoryview(data[first:]))
    root.folder("commitlog").free = 1 << 40
    end = slave.log.end
    copy_all(slave, data[end:], end, 100)
    assert log_bytes(slave) == data
    assert bodies(slave) == [0, 2]


@pytest.mark.parametrize("system_flags", [0, 8])
def test_failure_between_log_and_queue_is_the_end_of_the_node(
    monkeypatch: pytest.MonkeyPatch, system_flags: int
) -> None:
    master = open_at(MemoryFolder(chunk=64))
    Writer(master).put(make_message(1)._replace(system_flags=system_flags), 1000)
    slave = open_at(MemoryFolder(chunk=64))
    monkeypatch.setattr(slave, "put", lambda *arguments: 1 // 0)
    with pytest.raises(Inconsistent):
        copy_records(slave, 0, memoryview(log_bytes(master)))


TOPICS = ("topic", "a", "SCHEDULE_TOPIC_XXXX", "long" * 40, "überall")


def put_mixed(store: MessageStore, drawn: list[tuple[int, int, int, int]]) -> None:
    """Store messages of all kinds: delayed, of transactions, with many keys, with none, with others' bytes."""
    for number, (topic, flags, kind, size) in enumerate(drawn):
        properties = (
            b"",
            b"UNIQ_KEY\x01id%d" % number,
            b"UNIQ_KEY\x01id%d\x02TAGS\x01t%d\x02KEYS\x01one two  %d\x02" % (number, size, number),
            b"TAGS\x01\x02KEYS\x01\xff\x02WAIT\x01true\x02",
        )[kind]
        if TOPICS[topic] == "SCHEDULE_TOPIC_XXXX":
            properties = b"DELAY\x012\x02" + properties
        message = make_message(number, topic=TOPICS[topic], queue_id=number % 2, properties=properties)
        Writer(store).put(message._replace(system_flags=flags, body=bytes(size)), 1000 + number)


def index_of(store: MessageStore) -> list[bytes]:
    return [bytes(file.buffer) for file, _ in store.index._files]


@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 0, 0, 1, 2, 3, 4)),
            st.sampled_from((0, 0, 0, 0, 4, 8, 12)),
            st.integers(0, 3),
            st.sampled_from((0, 10, 300)),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from((None, 0, 700, 1 << 40)),
    st.sampled_from((1, 400, 10_000)),
    st.sampled_from((1, 100)),
)
@settings(max_examples=examples(60), deadline=None)
def test_records_taken_together_are_those_taken_one_by_one(
    drawn: list[tuple[int, int, int, int]], confirmed: int | None, piece: int, files: int
) -> None:
    """Both records read one by one and records read in columns."""
    options = SMALL._replace(
        index_entries=50,
        commit_log_file_bytes=SMALL.commit_log_file_bytes * files,
        consume_queue_file_bytes=SMALL.consume_queue_file_bytes * files,
    )
    master = open_store(MemoryFolder(chunk=64), options, lambda ms: f"{ms:017d}", due_ms)
    put_mixed(master, drawn)
    data = memoryview(log_bytes(master))
    made = []
    for patched, value in (
        ("broker.rocketmq.store.copying._copy_run", lambda *arguments: 0),
        ("formats.rocketmq.fast.plain_columns.MANY", 1 << 30),
        ("formats.rocketmq.fast.plain_columns.MANY", 1),
    ):
        root = MemoryFolder(chunk=64)
        store = open_store(root, options, lambda ms: f"{ms:017d}", due_ms)
        shown: list[tuple[str, int]] = []
        store.tell_shown(lambda *place, shown=shown: shown.append(place))
        if confirmed is not None:
            store.hold_back()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(patched, value)
            at = 0
            for end in range(piece, len(data) + piece, piece):
                at += copy_records(store, at, data[at:end], None, confirmed or 0)
                store.confirm(min(confirmed or 0, store.log.end))
        assert at == len(data)
        before = kept(root), index_of(store), set(shown), store.readable_end, store.confirmed
        store.confirm(1 << 60)
        made.append((before, kept(root), bytes(store._checkpoint.buffer)))
    assert made[1] == made[0]
    assert made[2] == made[0]


LARGE = SMALL._replace(commit_log_file_bytes=1 << 18, consume_queue_file_bytes=1 << 16, index_entries=4000)


@pytest.mark.parametrize("reading", ["columns", "records"])
def test_most_records_are_taken_together(monkeypatch: pytest.MonkeyPatch, reading: str) -> None:
    master, slave = (open_at(MemoryFolder(chunk=64), LARGE) for _ in range(2))
    count = 3 * MANY if reading == "columns" else MANY - 1
    for number in range(count):
        Writer(master).put(make_message(number, queue_id=number % 3), 1000 + number)
    monkeypatch.setattr(slave, "run_of", lambda *arguments: 1 // 0)
    other = "plain_records" if reading == "columns" else "_long_run"
    monkeypatch.setattr(f"broker.rocketmq.store.copying.{other}", lambda *arguments: 1 // 0)
    told: list[tuple[str, int, int, int]] = []
    copy_records(slave, 0, memoryview(log_bytes(master)), lambda *arrived: told.append(arrived))
    assert log_bytes(slave) == log_bytes(master)
    assert bodies(slave, queue_id=1) == list(range(1, count, 3))
    assert index_of(slave) == index_of(master)
    assert [each[:3] for each in told] == [("topic", queue, len(range(queue, count, 3))) for queue in range(3)]
    assert sum(size for *_, size in told) == master.log.end


def test_many_records_of_a_queue_that_was_removed_at_the_master_begin_it_anew() -> None:
    master, slave = (open_at(MemoryFolder(chunk=64), LARGE) for _ in range(2))
    for number in range(3):
        Writer(master).put(make_message(number), 1000)
    copy_all(slave, log_bytes(master), 0, 1 << 20)
    master.delete_topic("topic")
    begin = master.log.end
    for number in range(2 * MANY):
        Writer(master).put(make_message(number), 2000)
    copy_all(slave, log_bytes(master, begin), begin, 1 << 20)
    assert log_bytes(slave) == log_bytes(master)
    assert bodies(slave) == list(range(2 * MANY))


def test_many_records_fill_the_files_of_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    options = LARGE._replace(consume_queue_file_bytes=20 * (2 * MANY - 30))
    master_root, root = (MemoryFolder(chunk=64) for _ in range(2))
    master, slave = open_at(master_root, options), open_at(root, options)
    for number in range(6 * MANY):
        Writer(master).put(make_message(number), 1000)
    monkeypatch.setattr(slave, "run_of", lambda *arguments: 1 // 0)
    copy_all(slave, log_bytes(master), 0, 2 * MANY * 200)
    assert kept(root) == kept(master_root)
    assert bodies(slave) == list(range(6 * MANY))


def test_records_behind_delayed_ones_are_not_read_in_columns_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = (open_store(MemoryFolder(chunk=64), LARGE, lambda ms: f"{ms:017d}", due_ms) for _ in range(2))
    for number in range(5 * MANY):
        is_delayed = number >= MANY and number % 10 == 0
        topic, properties = ("SCHEDULE_TOPIC_XXXX", b"DELAY\x012\x02") if is_delayed else ("topic", b"")
        Writer(master).put(make_message(number, topic=topic, properties=properties), 1000 + number)
    calls = []

    def counted(*arguments: Any) -> PlainColumns | None:
        calls.append(arguments)
        return read_columns(*arguments)

    monkeypatch.setattr("broker.rocketmq.store.copying.read_columns", counted)
    copy_records(slave, 0, memoryview(log_bytes(master)))
    assert log_bytes(slave) == log_bytes(master)
    assert len(calls) == 1


def test_front_of_a_record_is_left() -> None:
    _, master = filled(1)
    data = log_bytes(master)
    slave = open_at(MemoryFolder(chunk=64))
    for end in range(len(data)):
        assert copy_records(slave, 0, memoryview(data[:end])) == 0
    assert copy_records(slave, 0, memoryview(data)) == len(data)
    assert isinstance(decode_record(log_bytes(slave)), Record)
