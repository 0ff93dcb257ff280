"""Runs of messages: the store is that of a simple model and of single messages, whenever it is cut short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Common, Placed, PlainMessage, Writer, plain_message
from formats.rocketmq.files.index import message_index_keys
from formats.rocketmq.files.record import BLANK_BYTES_MIN, encode_blank
from formats.rocketmq.flags import SystemFlag, Transaction
from formats.rocketmq.hosts import Host
from formats.rocketmq.java import HashedFront, index_hash, tag_hash
from formats.rocketmq.properties import decode_properties, encode_properties
from tests.broker.fakes import Crash
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import record_of
from tests.families import examples

SMALL = StoreOptions(commit_log_file_bytes=2048, consume_queue_file_bytes=100, index_slots=7, index_entries=12)
HOST = Host("127.0.0.1", 20911).pack()
V6 = Host("::1", 20911).pack()
NOW_MS = 1_700_000_000_000

KINDS = [
    Message("topic", 0, 5, 0, 0, HOST, HOST, 0, 0, b"", b""),
    Message("other" * 30, 0, 0, int(SystemFlag.BORN_HOST_V6), 0, V6, HOST, 3, 0, b"", b""),
    Message("topic", 0, 0, int(Transaction.PREPARED), 0, HOST, HOST, 0, 0, b"", b""),
]


def plain(kind: int, queue_id: int, number: int, size: int, properties: bytes | None = None) -> PlainMessage:
    common = Common(KINDS[kind])
    if properties is None:
        properties = encode_properties({"UNIQ_KEY": f"id{number}", "KEYS": f"key{number % 3}"})
    keys = message_index_keys(common.topic, decode_properties(properties))
    hashes = [index_hash(key) for key in keys]
    return common, queue_id, number, b"%d".ljust(size) % number, common.record_end(properties), hashes, number % 5


class Store:
    """A store in memory; `put` stores messages together, or else one by one."""

    def __init__(self, *, together: bool = True, room: int | None = None) -> None:
        self.folder = MemoryFolder(chunk=512)
        self.together = together
        self.store: MessageStore = open_store(self.folder, SMALL, lambda ms: f"{ms:017d}")
        self.writer = Writer(self.store)
        # The offset and size of each write to the log.
        self.writes: list[tuple[int, int]] = []
        append: Any = self.store.log.append

        def written(offset: int, data: memoryview) -> None:
            self.writes.append((offset, len(data)))
            append(offset, data)

        vars(self.store.log)["append"] = written
        if room is not None:
            for folder in (self.folder, *self.folder.inside.values()):
                folder.free = room

    def put(self, messages: Sequence[PlainMessage]) -> list[Placed]:
        if self.together:
            return self.writer.put_all(messages, NOW_MS)
        places: list[Placed] = []
        for each in messages:
            found = self.writer.put_all([each], NOW_MS)
            if not found:
                break
            places += found
        return places

    def ends(self) -> dict[tuple[str, int], int]:
        """The ends of the queues that have messages."""
        return {key: queue.end for key, queue in self.store.queues.items() if queue.end}


def model_of(messages: Sequence[PlainMessage]) -> bytes:
    """The log that has just these messages."""
    log = b""
    ends: Counter[tuple[str, int]] = Counter()
    for common, queue_id, born_ms, body, end, _, _ in messages:
        kind = next(
            kind
            for kind in KINDS
            if Common(kind).topic_field == common.topic_field and kind.system_flags == common.system_flags
        )
        properties = end[len(common.topic_field) + 2 :]
        made = kind._replace(queue_id=queue_id, born_ms=born_ms, body=body, properties=properties)
        queue_offset = 0
        if kind.system_flags != Transaction.PREPARED:
            queue_offset = ends[kind.topic, queue_id]
            ends[kind.topic, queue_id] += 1
        size = len(record_of(made, 0, 0, 0))
        left = SMALL.commit_log_file_bytes - len(log) % SMALL.commit_log_file_bytes
        if size + BLANK_BYTES_MIN > left:
            log += encode_blank(left).ljust(left, b"\0")
        log += record_of(made, len(log), queue_offset, NOW_MS)
    return log


message = st.builds(
    plain, st.sampled_from([0, 0, 0, 1, 1, 2]), st.integers(0, 2), st.integers(0, 999), st.sampled_from([3, 20, 200])
)
odd = st.sampled_from([plain(0, 1, 1, 20, b"UNIQ_KEY\1x\2n\1\0"), plain(0, 1, 1, 20, b"")])


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.one_of(message, message, message, odd), max_size=9), max_size=6))
def test_store_is_that_of_single_messages(batches: list[list[PlainMessage]]) -> None:
    one, other = Store(), Store(together=False)
    for batch in batches:
        assert one.put(batch) == other.put(batch)
    assert one.folder.contents() == other.folder.contents()
    files = one.store.log.files.files
    model = model_of([each for batch in batches for each in batch])
    assert b"".join([bytes(file.buffer) for file in files]) == model.ljust(
        len(files) * SMALL.commit_log_file_bytes, b"\0"
    )
    one.store.close()
    other.store.close()
    assert one.folder.contents() == other.folder.contents()


@pytest.mark.parametrize("room", range(0, 4096, 512))
def test_messages_beyond_the_room_of_a_full_disk_are_not_stored(room: int) -> None:
    one, other = Store(together=True, room=room), Store(together=False, room=room)
    for first in range(0, 40, 8):
        batch = [plain(0, number % 2, number, 90) for number in range(first, first + 8)]
        assert one.put(batch) == other.put(batch)
    assert one.ends() == other.ends()


def test_messages_are_written_to_the_log_at_once() -> None:
    store = Store()
    places = store.put([plain(0, number % 3, number, 20) for number in range(6)])
    assert store.writes == [(0, sum(size for _, size, _ in places))]
    assert [store.store.queues["topic", queue_id].end for queue_id in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("rare", [plain(2, 0, 9, 20), plain(0, 0, 9, 20, b"UNIQ_KEY\1x\2n\1\0")])
def test_rare_messages_are_in_the_run_of_the_others(rare: PlainMessage) -> None:
    store = Store()
    store.store.hold_back()
    assert len(store.put([plain(0, 0, 1, 20), rare, plain(0, 0, 2, 20)])) == 3
    assert len(store.writes) == 1


@pytest.mark.parametrize("refused", range(3))
def test_messages_before_one_that_is_refused_are_stored(refused: int) -> None:
    for bad in (plain(0, 1 << 40, 7, 20), plain(0, 0, 7, 4000), plain(2, 1 << 40, 7, 20)):
        store = Store()
        messages = [bad if number == refused else plain(0, 0, number, 20) for number in range(3)]
        assert len(store.put(messages)) == refused
        assert bodies(store.store) == [0, 1, 2][:refused]


def bodies(store: MessageStore) -> list[int]:
    return [int(bytes(found.record.body)) for found in store.log.records(store.log.begin)]


def test_killed_process_leaves_a_prefix_of_the_messages() -> None:
    messages = [plain(0, number % 2, number, 30) for number in range(5)]
    size = sum(place[1] for place in Store().put(messages))
    for kept in range(0, size + 1, 3):
        torn = Store()
        torn.put([plain(0, 0, 77, 30)])
        log: Any = torn.store.log
        append = log.append

        def write(begin: int, data: memoryview, log: Any = log, append: Any = append, kept: int = kept) -> None:
            append(begin, data)
            file, place = log.files.place(begin)
            # The size of the first record is written last.
            written = bytes(4) + bytes(data[4:kept]) if kept < len(data) else bytes(data)
            file.buffer[place : place + len(data)] = written.ljust(len(data), b"\0")
            raise Crash

        log.append = write
        with pytest.raises(Crash):
            torn.put(messages)
        again = open_store(torn.folder.after_crash(), SMALL, lambda ms: f"{ms:017d}")
        found = bodies(again)
        assert found == ([77, 0, 1, 2, 3, 4] if kept >= size else [77])
        entries = [entry.physical_offset for queue_id in (0, 1) for entry in again.get("topic", queue_id, 0, 99)]
        assert sorted(entries) == [each.offset for each in again.log.records(again.log.begin)]


def test_messages_are_in_their_queue_once_they_are_confirmed() -> None:
    store = Store()
    store.store.hold_back()
    places = store.put([plain(number % 3, 0, number, 20) for number in range(9)])
    assert [place[2] for place in places] == [0, 0, 0, 1, 1, 0, 2, 2, 0]
    for end, offset in ((places[1][0], 1), (places[7][0], 3)):
        store.store.confirm(end)
        assert store.ends()["topic", 0] == offset
    assert store.store.readable_end == places[7][0]


NAMED = st.sampled_from([b"UNIQ_KEY\1", b"KEYS\1", b"TAGS\1", b"OTHER\1", b"KEYS", b"\1", b""])
VALUED = st.sampled_from([b"", b"one", b"7F0000010A2B2F2A6CFF0001", b"one  two ", "ü€".encode(), b"\xff\xfe", b"a\1b"])


@given(st.lists(st.tuples(NAMED, VALUED, st.sampled_from([b"\2", b"\2", b"\2", b""])), max_size=6))
def test_keys_and_tags_are_those_of_the_decoded_properties(pieces: list[tuple[bytes, bytes, bytes]]) -> None:
    properties = b"".join(b"".join(piece) for piece in pieces)
    made = plain_message(Common(KINDS[0]), HashedFront(b"topic#"), 0, 0, b"", properties)
    parsed = decode_properties(properties)
    assert made[5] == [index_hash(key) for key in message_index_keys("topic", parsed)]
    assert made[6] == tag_hash(parsed.get("TAGS", ""))
