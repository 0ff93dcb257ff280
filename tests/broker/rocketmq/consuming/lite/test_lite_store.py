"""Messages in two queues: that of their topic, and that of their lite topic."""

from __future__ import annotations

import pytest

from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.copying import copy_records
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.lite import queue_name
from formats.rocketmq.properties import encode_properties
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import SMALL, make_message

LITE = queue_name("topic", "a")


def lite_message(number: int, offset: int, lite_topic: str = "a") -> Message:
    properties = {
        "__LITE_TOPIC": lite_topic,
        "INNER_MULTI_DISPATCH": queue_name("topic", lite_topic),
        "INNER_MULTI_QUEUE_OFFSET": str(offset),
    }
    return make_message(number, properties=encode_properties(properties))


def following(store: MessageStore) -> int:
    return store.next_offset(store.open_queue(LITE, 0))


def copy(store: MessageStore, slave: MessageStore) -> None:
    """Give a store the log of another, file by file."""
    at, size = 0, store.log.files.file_size
    while at < store.log.end:
        data = store.log.data(at, min(size, store.log.end - at))
        assert copy_records(slave, at, data) == len(data)
        at += len(data)


def fill(store: MessageStore, count: int = 40) -> None:
    """Store messages of which every second one is of a lite topic."""
    for number in range(count):
        if number % 2:
            stored = Writer(store).put(lite_message(number, following(store)), 1000 + number)
            assert stored.lite_queue == LITE
        else:
            assert Writer(store).put(make_message(number), 1000 + number).lite_queue is None


def places(store: MessageStore, topic: str) -> list[int]:
    queue = store.queues[topic, 0]
    return [queue.get(number).physical_offset for number in range(queue.begin, queue.end)]


def open_small(folder: MemoryFolder) -> MessageStore:
    return open_store(folder, SMALL, lambda ms: f"{ms:017d}")


def test_message_is_in_both_queues() -> None:
    store = open_small(MemoryFolder(chunk=64))
    fill(store)
    assert places(store, LITE) == places(store, "topic")[1::2]


def test_message_out_of_its_turn_is_in_its_own_queue_only() -> None:
    store = open_small(MemoryFolder(chunk=64))
    assert Writer(store).put(lite_message(0, 3), 1000).lite_queue is None
    assert store.span("topic", 0) == (0, 1)
    assert store.span(LITE, 0) == (0, 0)


@pytest.mark.parametrize("lost", [(), (LITE,), (LITE, "topic")])
def test_queues_of_lite_topics_are_mended_from_the_log(lost: tuple[str, ...]) -> None:
    folder = MemoryFolder(chunk=64)
    store = open_small(folder)
    fill(store)
    expected = places(store, LITE)
    store.flush()
    for name in lost:
        for (topic, _), queue in store.queues.items():
            if topic == name:
                queue.cut_log(0)
    store = open_small(folder.after_crash())
    assert places(store, LITE) == expected
    assert places(store, "topic")[1::2] == expected
    Writer(store).put(lite_message(41, following(store)), 2000)
    assert len(places(store, LITE)) == len(expected) + 1


def test_lite_topic_that_was_removed_begins_anew_after_a_crash_too() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_small(folder)
    fill(store)
    store.delete_topic(LITE)
    for number in range(3):
        Writer(store).put(lite_message(50 + number, number), 2000)
    expected = places(store, LITE)
    assert len(expected) == 3
    store = open_small(folder.after_crash())
    assert places(store, LITE) == expected


def test_copies_are_in_both_queues() -> None:
    store, slave = open_small(MemoryFolder(chunk=64)), open_small(MemoryFolder(chunk=64))
    fill(store)
    copy(store, slave)
    assert places(slave, LITE) == places(store, LITE)


def test_copy_begins_the_queue_anew_that_was_removed_at_the_master() -> None:
    store, slave = open_small(MemoryFolder(chunk=64)), open_small(MemoryFolder(chunk=64))
    fill(store)
    store.delete_topic(LITE)
    Writer(store).put(lite_message(50, 0), 2000)
    copy(store, slave)
    assert places(slave, LITE) == places(store, LITE)


@pytest.mark.parametrize("is_begun", [True, False])
def test_unconfirmed_message_is_in_neither_queue(is_begun: bool) -> None:
    store = open_small(MemoryFolder(chunk=64))
    if is_begun:
        store.hold_back()
        fill(store)
    else:
        fill(store)
        store.flush()
        expected = places(store, LITE)
        store.hold_back()
        assert places(store, LITE) == expected
        Writer(store).put(make_message(40), 2000)
        Writer(store).put(lite_message(41, following(store)), 2000)
        assert places(store, LITE) == expected
    told: list[tuple[str, int]] = []
    store.tell_shown(lambda *place: told.append(place))
    if is_begun:
        assert store.span(LITE, 0) == (0, 0)
        assert following(store) == 20
    store.confirm(store.log.end)
    assert len(places(store, LITE)) == (20 if is_begun else 21)
    assert told.count((LITE, 0)) == (20 if is_begun else 1)
    assert places(store, LITE) == places(store, "topic")[1::2]


def test_message_held_back_at_a_start_is_entered_into_both_queues_later() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_small(folder)
    store.hold_back()
    fill(store, 20)
    store.confirm(store.log.end)
    store.flush()
    fill(store, 20)
    store.flush()
    store = open_small(folder.after_crash())
    store.hold_back()
    assert len(places(store, LITE)) == 10
    store.confirm(store.log.end)
    assert places(store, LITE) == places(store, "topic")[1::2]


def test_cut_of_the_log_cuts_both_queues() -> None:
    store = open_small(MemoryFolder(chunk=64))
    fill(store)
    store.flush()
    cut = places(store, LITE)[5]
    store.truncate(cut)
    assert len(places(store, LITE)) == 5
    assert places(store, "topic")[1::2] == places(store, LITE)


def test_lite_topics_of_a_removed_parent_do_not_come_back() -> None:
    folder = MemoryFolder(chunk=64)
    store = open_small(folder)
    fill(store)
    store.flush()
    store.flush()
    store.delete_topic("topic")
    store.delete_topic(LITE)
    store = open_small(folder.without_power())
    assert store.span(LITE, 0) == (0, 0)
    assert Writer(store).put(lite_message(50, 0), 2000).lite_queue == LITE
