"""Messages that are stored together: the store is that of the same messages one by one, whenever it is cut short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Batches, Common, PlainMessage, message_of
from formats.rocketmq.files.index import message_index_keys
from formats.rocketmq.flags import SystemFlag, Transaction
from formats.rocketmq.hosts import Host
from formats.rocketmq.java import index_hash
from formats.rocketmq.properties import decode_properties, encode_properties
from tests.broker.fakes import Crash
from tests.broker.rocketmq.folders import MemoryFolder

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

    def __init__(self, *, together: bool, room: int | None = None) -> None:
        self.folder = MemoryFolder(chunk=512)
        self.together = together
        self.store: MessageStore = open_store(self.folder, SMALL, lambda ms: f"{ms:017d}")
        if room is not None:
            for folder in (self.folder, *self.folder.inside.values()):
                folder.free = room

    def put(self, messages: Sequence[PlainMessage]) -> list[tuple[int, int, int]]:
        if self.together:
            return Batches(self.store).put(messages, NOW_MS)
        places = []
        for each in messages:
            try:
                stored = self.store.put_plain(message_of(each), NOW_MS, each[5], each[6])
            except DiskFull:
                break
            places.append((stored.offset, stored.size, stored.queue_offset))
        return places

    def ends(self) -> dict[tuple[str, int], int]:
        """The ends of the queues that have messages."""
        return {key: queue.end for key, queue in self.store.queues.items() if queue.end}


message = st.builds(
    plain, st.sampled_from([0, 0, 0, 1, 1, 2]), st.integers(0, 2), st.integers(0, 999), st.sampled_from([3, 20, 200])
)
odd = st.sampled_from([plain(0, 1, 1, 20, b"UNIQ_KEY\1x\2n\1\0"), plain(0, 1, 1, 20, b"")])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.one_of(message, message, message, odd), max_size=9), max_size=6))
def test_store_is_that_of_single_messages(batches: list[list[PlainMessage]]) -> None:
    one, other = Store(together=True), Store(together=False)
    for batch in batches:
        assert one.put(batch) == other.put(batch)
    assert one.folder.contents() == other.folder.contents()
    one.store.close()
    other.store.close()
    assert one.folder.contents() == other.folder.contents()


@pytest.mark.parametrize("room", range(0, 4096, 512))
def test_what_a_full_disk_has_no_room_for_is_not_stored(room: int) -> None:
    one, other = Store(together=True, room=room), Store(together=False, room=room)
    for first in range(0, 40, 8):
        batch = [plain(0, number % 2, number, 90) for number in range(first, first + 8)]
        assert one.put(batch) == other.put(batch)
    assert one.ends() == other.ends()


def test_messages_are_written_to_the_log_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(together=True)
    monkeypatch.setattr(store.store.log, "append", lambda *words: 1 // 0)
    assert len(store.put([plain(0, number % 3, number, 20) for number in range(6)])) == 6
    assert [store.store.queues["topic", queue_id].end for queue_id in range(3)] == [2, 2, 2]


def bodies(store: MessageStore) -> list[int]:
    return [int(bytes(found.record.body)) for found in store.log.records(store.log.begin)]


def test_whatever_was_written_when_the_process_was_killed_is_a_front_of_the_messages() -> None:
    messages = [plain(0, number % 2, number, 30) for number in range(5)]
    size = sum(place[1] for place in Store(together=True).put(messages))
    for kept in range(0, size + 1, 3):
        torn = Store(together=True)
        torn.put([plain(0, 0, 77, 30)])
        log: Any = torn.store.log
        append_all = log.append_all

        def write(data: memoryview, log: Any = log, append_all: Any = append_all, kept: int = kept) -> None:
            begin = log.end
            append_all(data)
            file, place = log.files.place(begin)
            # The size of the first record is written last.
            written = bytes(4) + bytes(data[4:kept]) if kept < len(data) else bytes(data)
            file.buffer[place : place + len(data)] = written.ljust(len(data), b"\0")
            raise Crash

        log.append_all = write
        with pytest.raises(Crash):
            torn.put(messages)
        again = open_store(torn.folder.after_crash(), SMALL, lambda ms: f"{ms:017d}")
        found = bodies(again)
        assert found == ([77, 0, 1, 2, 3, 4] if kept >= size else [77])
        entries = [entry.physical_offset for queue_id in (0, 1) for entry in again.get("topic", queue_id, 0, 99)]
        assert sorted(entries) == [each.offset for each in again.log.records(again.log.begin)]


def test_messages_are_one_by_one_while_they_are_held_back() -> None:
    store = Store(together=True).store
    store.hold_back()
    assert [place[2] for place in Batches(store).put([plain(0, 0, number, 20) for number in range(3)], NOW_MS)] == [
        0,
        1,
        2,
    ]
    assert store.queues["topic", 0].end == 0
    store.confirm(store.log.end)
    assert store.queues["topic", 0].end == 3
