"""The other files of a store: made again from the commit log, byte for byte, or read and written back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT, TIMER_CHECKPOINT
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER, ConsumeQueueEntry
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs, encode_epochs
from formats.rocketmq.files.index import IndexFile, IndexKeys, index_key, message_index_keys
from formats.rocketmq.files.record import Record, encode_record
from formats.rocketmq.files.timer import NONE, TIMER_RECORD, TIMER_SLOT, TimerFlag, slot_index
from formats.rocketmq.flags import Transaction, transaction_of
from formats.rocketmq.java import PartHashes, index_hash, index_hashes, string_hash
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting import fastjson
from formats.schema import Layout
from tests.golden.rocketmq.stores import records, unpack

SLOTS, ENTRIES = 500, 400
"""The sizes of the golden store's index files."""

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
TICK_MS = 1000


def sound_records(broker: Path) -> list[tuple[int, Record]]:
    return [(offset, record) for offset, record in records(broker) if isinstance(record, Record)]


def test_golden_consume_queues_follow_from_the_commit_log(golden_broker: Path) -> None:
    by_queue: dict[tuple[str, str], dict[int, ConsumeQueueEntry]] = {}
    for offset, record in sound_records(golden_broker):
        if transaction_of(record.system_flags) in (Transaction.PREPARED, Transaction.ROLLBACK):
            continue
        size = len(encode_record(record))
        tags = decode_properties(record.properties).get("TAGS")
        entry = ConsumeQueueEntry(offset, size, string_hash(tags) if tags else 0)
        by_queue.setdefault((record.topic, str(record.queue_id)), {})[record.queue_offset] = entry
    compared = 0
    for folder in sorted((golden_broker / "consumequeue").glob("*/*")):
        expected = by_queue.pop((folder.parent.name, folder.name))
        found: dict[int, ConsumeQueueEntry] = {}
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            first = int(path.name) // CONSUME_QUEUE_ENTRY.size
            for number in range(len(data) // CONSUME_QUEUE_ENTRY.size):
                entry = CONSUME_QUEUE_ENTRY.unpack(data, number * CONSUME_QUEUE_ENTRY.size)
                if entry.size and entry != FILLER:
                    found[first + number] = entry
        if folder.parent.name == DELAY_TOPIC:
            # The time at which a message is due stands for its tag.
            found = {number: entry._replace(tags_code=0) for number, entry in found.items()}
            expected = {number: entry._replace(tags_code=0) for number, entry in expected.items()}
        assert found == expected
        compared += len(found)
    assert compared > 800
    assert not by_queue


def test_golden_index_is_made_again_from_the_commit_log(golden_broker: Path) -> None:
    """The same keys in the same order make the same files, slots and chains and headers included."""
    made: list[bytearray] = []
    index: IndexFile | None = None
    for offset, record in sound_records(golden_broker):
        if transaction_of(record.system_flags) is Transaction.ROLLBACK:
            continue
        for key in message_index_keys(record.topic, decode_properties(record.properties)):
            if index is None or index.is_full:
                ended = index.header if index is not None else None
                made.append(bytearray(IndexFile.size_of(SLOTS, ENTRIES)))
                index = IndexFile(made[-1], SLOTS, ENTRIES)
                if ended is not None:
                    index.begin(ended.end_offset, ended.end_ms)
            assert index.put(key, offset, record.stored_ms)
    golden = [path.read_bytes() for path in sorted((golden_broker / "index").iterdir())]
    assert len(golden) == len(made) == 7
    for ours, theirs in zip(made, golden, strict=True):
        assert ours == theirs


def test_golden_index_finds_messages_by_key(golden_broker: Path) -> None:
    files = [IndexFile(bytearray(path.read_bytes()), SLOTS, ENTRIES) for path in (golden_broker / "index").iterdir()]
    found = 0
    for offset, record in sound_records(golden_broker):
        key = decode_properties(record.properties).get("UNIQ_KEY")
        if key is not None and transaction_of(record.system_flags) is not Transaction.ROLLBACK:
            wanted = index_key(record.topic, key)
            offsets = [at for file in files for at in file.find(wanted, 0, 1 << 62)]
            assert offset in offsets
            found += 1
    assert found > 800


def test_index_tells_full_files_and_narrow_times() -> None:
    index = IndexFile(bytearray(IndexFile.size_of(2, 4)), 2, 4)
    assert [index.put(f"t#{key}", at, 1_000_000 + at * 1000) for at, key in enumerate("abac")] == [
        True,
        True,
        True,
        False,
    ]
    assert list(index.find("t#a", 0, 1 << 60)) == [2, 0]
    assert list(index.find("t#a", 1_001_000, 1 << 60)) == [2]
    assert list(index.find("t#a", 0, 1_000_999)) == [0]
    assert list(index.find("t#z", 0, 1 << 60)) == []
    assert index.is_full


@given(st.binary(min_size=80, max_size=80))
def test_damaged_index_ends_a_search(damage: bytes) -> None:
    index = IndexFile(bytearray(IndexFile.size_of(2, 4)), 2, 4)
    for at in range(3):
        index.put("t#a", at, 1_000_000)
    data = bytearray(IndexFile.size_of(2, 4))
    data[:36] = damage[:36]
    data[36:40] = (4).to_bytes(4, "big")
    data[40:] = damage[40:] + bytes(len(data) - len(damage))
    assert len(list(IndexFile(data, 2, 4).find("t#a", 0, 1 << 60))) <= 3


def test_index_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(FormatError, match="has 100 bytes; 2 slots and 4 entries take 128"):
        IndexFile(bytearray(100), 2, 4)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_java_hashes(text: str, number: int) -> None:
    assert string_hash(text) == number
    assert index_hash(text) == (abs(number) if number != -(1 << 31) else 0)


@given(st.lists(st.text(min_size=1, max_size=40) | st.just("polygenelubricants"), min_size=1, max_size=20))
def test_many_keys_are_hashed_as_one_is(texts: list[str]) -> None:
    keys = [text.encode(errors="replace") for text in texts] + [b"x" * 5000]
    assert index_hashes(keys).tolist() == [index_hash(key.decode()) for key in keys]


@given(st.binary(min_size=1, max_size=60), st.data())
def test_parts_of_a_text_are_hashed_as_texts_of_their_own(text: bytes, more: st.DataObject) -> None:
    """Parts with few units in front of them, and with so many that other powers are needed."""
    before = more.draw(st.sampled_from((0, 1, 70_000, 300_000)))
    begin = more.draw(st.integers(0, len(text) - 1))
    end = more.draw(st.integers(begin + 1, len(text)))
    hashes = PartHashes(np.frombuffer(b"\xff" * before + text, np.uint8))
    found = hashes.find(np.array([before + begin]), np.array([before + end]))
    assert found.view(np.int32).tolist() == [string_hash(text[begin:end].decode("latin-1"))]


def test_bytes_that_are_no_text_are_hashed_as_java_reads_them() -> None:
    assert index_hashes([b"a\xffb", b"ab"]).tolist() == [index_hash("a\ufffdb"), index_hash("ab")]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5_000)), min_size=1, max_size=60), st.integers(-1, 900))
def test_many_entries_are_those_of_one_after_the_other(entries: list[tuple[int, int]], begin_ms: int) -> None:
    """Slots with several entries, of before and of the same time, and times that go back."""
    one, many = (IndexFile(bytearray(IndexFile.size_of(7, 100)), 7, 100) for _ in range(2))
    for file in (one, many):
        file.put_hash(5, 10, begin_ms)
        file.put_hash(12, 20, 1000)
    for number, (key_hash, ms) in enumerate(entries):
        one.put_hash(key_hash, 30 + number, ms)
    hashes, times = zip(*entries, strict=True)
    offsets = np.arange(30, 30 + len(entries))
    many.put_hashes(IndexKeys(np.array(hashes, np.uint32), offsets, np.array(times, np.int64)))
    assert many._buffer == one._buffer
    assert (many.next_entry, many.header) == (one.next_entry, one.header)
    for file in (one, many):
        file.put_hash(5, 1000, 9000)
    assert many._buffer == one._buffer


def test_golden_checkpoints_are_written_back(golden_brokers: dict[str, list[Path]]) -> None:
    for broker in (broker for brokers in golden_brokers.values() for broker in brokers):
        layouts: list[tuple[Path, Layout[Any]]] = [
            (broker / "checkpoint", STORE_CHECKPOINT),
            (broker / "config" / "timercheck", TIMER_CHECKPOINT),
        ]
        for path, layout in layouts:
            data = path.read_bytes()
            assert len(data) == CHECKPOINT_BYTES
            assert layout.pack(layout.unpack(data)) + bytes(CHECKPOINT_BYTES - layout.size) == data


def test_golden_checkpoint_has_the_times_of_the_last_message(golden_broker: Path) -> None:
    checkpoint = STORE_CHECKPOINT.unpack((golden_broker / "checkpoint").read_bytes())
    _, last = sound_records(golden_broker)[-1]
    assert checkpoint.commit_log_ms == checkpoint.consume_queue_ms == last.stored_ms


def test_golden_epochs_are_written_back(golden_brokers: dict[str, list[Path]]) -> None:
    read = 0
    for broker in (broker for brokers in golden_brokers.values() for broker in brokers):
        for path in broker.glob("epochFileCheckpoint*"):
            data = path.read_bytes()
            entries = decode_epochs(data)
            assert encode_epochs(entries) == data
            read += len(entries)
    assert read > 20


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not begin with two lines of a number each"),
        (b"1\n0\n", "says 1, but there are 0 entries"),
        (b"1\n7\n1-0\n", "says 7, but the entries make 1725254278"),
        (b"1\n0\n1:0\n", "'1:0' is not EPOCH-OFFSET"),
        (b"2\n0\n2-0\n1-5\n", "does not follow"),
        (b"\xff", "is not ASCII"),
    ],
)
def test_damaged_epochs_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_epochs(data)


def test_checksum_of_0_is_not_compared() -> None:
    assert decode_epochs(b"1\n0\n1-5\n") == [EpochEntry(1, 5)]


@pytest.mark.slow
def test_golden_timer_wheel_leads_to_its_log(tmp_path: Path) -> None:
    """Every slot in use leads through its records of the log, which are written back."""
    (broker,) = unpack("store", tmp_path, without=("commitlog",))
    log = (broker / "timerlog" / "00000000000000000000").read_bytes()
    with (broker / "timerwheel").open("rb") as wheel:
        data = wheel.read()
    slots = len(data) // TIMER_SLOT.size
    seen = 0
    for number in range(slots):
        if not any(data[number * TIMER_SLOT.size : (number + 1) * TIMER_SLOT.size]):
            continue
        slot = TIMER_SLOT.unpack(data, number * TIMER_SLOT.size)
        assert slot_index(slot.ticks * TICK_MS, TICK_MS, slots) == number
        at, count, balance = slot.last, 0, 0
        while at != NONE:
            record = TIMER_RECORD.unpack(log, at)
            assert TIMER_RECORD.pack(record) == log[at : at + TIMER_RECORD.size]
            assert record.size == TIMER_RECORD.size
            assert TimerFlag.DEFAULT in TimerFlag(record.flags)
            assert at >= slot.first
            # A recall takes a message away.
            balance += -1 if record.flags & TimerFlag.DELETE else 1
            at, count = record.previous, count + 1
        assert balance == slot.messages
        seen += count
    assert seen == 5


def test_golden_configuration_files_are_written_back(golden_brokers: dict[str, list[Path]]) -> None:
    read = 0
    for broker in (broker for brokers in golden_brokers.values() for broker in brokers):
        for path in (broker / "config").iterdir():
            text = path.read_bytes().decode(errors="replace")
            if path.name != "timercheck" and text:
                value = fastjson.loads_file(text)
                assert text in (fastjson.dumps_pretty(value), fastjson.dumps(value)), path
                read += 1
    assert read > 80


def test_keys_of_objects_may_be_numbers_and_objects() -> None:
    text = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7,3:4},"positions":[88,108,95]}'
    assert fastjson.loads(text)["positions"] == [88, 108, 95]
    value = fastjson.loads_file(text)
    assert value["offsetTable"][3] == 4
    (key,) = (key for key in value["offsetTable"] if isinstance(key, fastjson.ObjectKey))
    assert dict(key) == {"brokerName": "b", "queueId": 0, "topic": "t"}
    assert value["positions"] == (88, 108, 95)
    assert fastjson.dumps(value) == text


@pytest.mark.parametrize(
    ("text", "offset", "reason"),
    [
        ("", 0, "expecting value"),
        ('{"a":1} x', 8, "extra data"),
        ('{"a" 1}', 5, "expecting ':' delimiter"),
        ("[1,]", 3, "expecting value"),
        ('{"a":"\\q"}', 6, "invalid \\\\escape"),
        ('{"a":"\\uD83Dx"}', 6, "half of a surrogate pair"),
        ('{"a":"\\\\\\uD83D\\uDE00\\uDE00"}', 20, "half of a surrogate pair"),
        ("{1.5:2}", 1, "expecting property name"),
        ("[" * 10_000, 0, "nested too deeply"),
        ("{0:" * 10_000, 0, "nested too deeply"),
        ('{{"a":[{}]}:2}', 1, "expecting property name"),
        ('{{"a":[1]}:2}', 0, "cannot be a key"),
        ('{{"a":1:2}', 1, "expecting property name"),
        ('{"\\u0001o9":1,0:1}', 0, "cannot be a key"),
        ("[1,NaN]", 0, "NaN is no number"),
        ("{0:-Infinity}", 0, "-Infinity is no number"),
        ("[" + "1" * 5_000 + "]", 0, "thousands of digits"),
        ("{0:1}\0", 1, "expecting property name"),
        ('{0:"a', 1, "expecting property name"),
    ],
)
def test_invalid_json_is_refused(text: str, offset: int, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        fastjson.loads(text)
    assert caught.value.offset == offset
