"""Stores that show only what is confirmed."""

from __future__ import annotations

import pytest

from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import SMALL, make_message


def open_held(folder: MemoryFolder, unnoted: int | None = None) -> MessageStore:
    store = open_store(folder, SMALL, lambda ms: f"{ms:017d}")
    store.hold_back(unnoted)
    return store


def put(store: MessageStore, *numbers: int) -> list[int]:
    """Store messages; return the end of each, and the end of its queue according to the senders' answers."""
    ends = []
    for number in numbers:
        stored = Writer(store).put(make_message(number), 1000 + number)
        assert stored.queue_offset == number
        ends.append(stored.offset + stored.size)
    return ends


def shown(store: MessageStore) -> int:
    return sum(queue.end - queue.begin for queue in store.queues.values())


def test_messages_are_in_their_queues_once_they_are_confirmed() -> None:
    store = open_held(MemoryFolder(chunk=64))
    told: list[tuple[str, int]] = []
    store.tell_shown(lambda *place: told.append(place))
    ends = put(store, *range(20))
    assert shown(store) == 0
    assert store.readable_end == 0
    store.confirm(ends[9] + 1)
    assert shown(store) == len(told) == 10
    assert store.readable_end == ends[9]
    store.confirm(1 << 40)
    assert shown(store) == 20
    put(store, 20)
    store.confirm(store.log.end - 1)
    assert shown(store) == 20
    store.confirm(store.log.end)
    assert shown(store) == 21


def test_queues_are_the_same_as_those_of_a_store_that_shows_everything() -> None:
    plain, held = open_store(MemoryFolder(chunk=64), SMALL, lambda ms: f"{ms:017d}"), open_held(MemoryFolder(chunk=64))
    for number in range(40):
        for store in (plain, held):
            Writer(store).put(make_message(number), 1000 + number)
        held.confirm(held.log.end - number)
    held.confirm(held.log.end)
    assert {key: [queue.get(n) for n in range(queue.end)] for key, queue in plain.queues.items()} == {
        key: [queue.get(n) for n in range(queue.end)] for key, queue in held.queues.items()
    }


def test_cut_takes_what_is_held_back_first() -> None:
    store = open_held(MemoryFolder(chunk=64))
    ends = put(store, *range(10))
    store.confirm(ends[3])
    store.truncate(ends[6])
    store.confirm(1 << 40)
    assert shown(store) == 7
    put(store, 7, 8)
    store.truncate(ends[1])
    assert shown(store) == 2
    assert store.readable_end == store.log.end == ends[1]
    put(store, 2)
    assert shown(store) == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_start_shows_what_was_noted_as_confirmed(is_clean: bool) -> None:
    folder = MemoryFolder(chunk=64)
    store = open_held(folder)
    ends = put(store, *range(12))
    store.confirm(ends[4])
    store.flush()
    put(store, 12)
    if is_clean:
        store.close()
    again = open_held(folder if is_clean else folder.after_crash())
    assert again.log.end == store.log.end
    assert shown(again) == 5
    put(again, 13)
    again.confirm(again.log.end)
    assert shown(again) == 14


def test_start_without_a_note_shows_everything() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_store(folder, SMALL, lambda ms: f"{ms:017d}")
    for number in range(5):
        Writer(store).put(make_message(number), 1000 + number)
    store.close()
    assert shown(open_held(folder)) == 5


def test_start_without_a_note_shows_what_is_from_the_time_before() -> None:
    folder = MemoryFolder(chunk=64)
    ends = put(open_held(folder), *range(5))
    for begin, count in ((0, 0), (ends[2], 3)):
        again = open_held(folder.after_crash(), begin)
        assert (again.confirmed, shown(again)) == (begin, count)
        again.confirm(again.log.end)
        assert shown(again) == 5


def test_note_outlives_a_loss_of_power() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_held(folder)
    ends = put(store, *range(5))
    store.confirm(ends[2])
    store.flush()
    again = open_held(folder.without_power(), 0)
    assert (again.confirmed, shown(again)) == (ends[2], 3)


def test_messages_are_shown_that_came_before_others_whose_queue_had_room_first() -> None:
    folder = MemoryFolder(chunk=64)
    entries = SMALL.consume_queue_file_bytes // 20
    store = open_held(folder)
    ends = put(store, *range(entries + 1))
    # In the next life nothing is confirmed, and the first room that the queue needs is in its second file.
    again = open_held(folder.after_crash(), 0)
    assert shown(again) == 0
    put(again, entries + 1)
    again.confirm(ends[0])
    assert shown(again) == 1
    again.confirm(again.log.end)
    assert shown(again) == entries + 2


def test_queue_that_had_room_for_later_messages_takes_earlier_ones_after_a_cut() -> None:
    folder = MemoryFolder(chunk=64)
    entries = SMALL.consume_queue_file_bytes // 20
    ends = put(open_held(folder), *range(entries + 1))
    again = open_held(folder.after_crash(), 0)
    put(again, entries + 1)
    again.truncate(ends[0])
    put(again, 1)
    again.confirm(again.log.end)
    assert shown(again) == 2


def test_store_that_held_back_can_be_opened_as_a_plain_one_after_a_crash() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_held(folder)
    ends = put(store, *range(30))
    store.confirm(ends[7])
    store.flush()
    put(store, 30)
    again = open_store(folder.after_crash(), SMALL, lambda ms: f"{ms:017d}")
    assert shown(again) == 31


def test_removed_topic_gets_nothing_that_was_held_back() -> None:
    store = open_held(MemoryFolder(chunk=64))
    put(store, *range(6))
    store.delete_topic(make_message(0).topic)
    store.confirm(store.log.end)
    assert shown(store) == 0
    put(store, 0)
    store.confirm(store.log.end)
    assert shown(store) == 1


def test_removed_queue_that_started_over_twice_gets_nothing_that_was_held_back() -> None:
    store = open_held(MemoryFolder(chunk=64))
    master = open_store(MemoryFolder(chunk=64), SMALL, lambda ms: f"{ms:017d}")
    for _ in range(2):
        stored = Writer(master).put(make_message(0), 1000)
        found = next(master.log.records(stored.offset))
        store.put(store.run_of(found, bytes(master.log.data(stored.offset, stored.size))), 0)
        master.delete_topic(make_message(0).topic)
    store.confirm(stored.offset)
    assert shown(store) == 1
    store.delete_topic(make_message(0).topic)
    store.confirm(store.log.end)
    assert shown(store) == 0


def fits(store: MessageStore, number: int) -> bool:
    try:
        Writer(store).put(make_message(number), 1000)
    except DiskFull:
        return False
    return True


def test_message_is_refused_while_its_queue_has_no_room() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_held(folder)
    put(store, *range(3))
    queue = folder.folder("consumequeue").folder("topic").folder("0")
    queue.free = 0
    stored = 3
    while fits(store, stored):
        stored += 1
    end = store.log.end
    store.confirm(end)
    assert shown(store) == stored
    assert store.log.end == end
