"""Topics that were removed: no start enters what they had into queues again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.rocketmq.store.deletions import DELETED_NAME, Deletions
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import CHECKPOINT, MessageStore
from broker.rocketmq.store.terms import Flush
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.files.checkpoints import STORE_CHECKPOINT
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import bodies, make_message, open_small

End = Callable[[MemoryFolder, MessageStore], MemoryFolder]


def stop(root: MemoryFolder, store: MessageStore) -> MemoryFolder:
    store.close()
    return root.after_crash()


def kill(root: MemoryFolder, store: MessageStore) -> MemoryFolder:
    return root.after_crash()


def lose_power(root: MemoryFolder, store: MessageStore) -> MemoryFolder:
    return root.without_power()


def lose_queues(root: MemoryFolder, store: MessageStore) -> MemoryFolder:
    found = root.after_crash()
    found.folder("consumequeue").inside.clear()
    return found


def lose_removal(root: MemoryFolder, store: MessageStore) -> MemoryFolder:
    """Lose power before the removal of the topic's folder is on the disk."""
    found, old = root.without_power(), MemoryFolder()
    fill(open_small(old))
    found.folder("consumequeue").inside["topic"] = old.after_crash().folder("consumequeue").folder("topic")
    return found


ENDS = (stop, kill, lose_power, lose_queues, lose_removal)


def fill(store: MessageStore) -> None:
    """Store messages of two topics, the last ones of the topic that is to be removed."""
    for number in range(3):
        Writer(store).put(make_message(10 + number, topic="other"), 1_000_000)
    for number in range(3):
        Writer(store).put(make_message(number), 1_000_000)
    store.flush()
    store.flush()


@pytest.mark.parametrize("end", ENDS)
def test_removed_topic_does_not_come_back(end: End) -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    store.delete_topic("topic")
    root = end(root, store)
    for _ in range(2):
        store = open_small(root)
        assert (bodies(store), bodies(store, "other")) == ([], [10, 11, 12])
        root = root.after_crash()
    store.hold_back(0)
    store.confirm(store.log.end)
    assert bodies(store) == []


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("flushes", [0, 1, 2, 3])
def test_note_counts_though_the_clock_was_set_back(end: End, flushes: int) -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    for number in range(flushes):
        Writer(store).put(make_message(13 + number, topic="other"), 900_000 + number)
        store.end_flush(flush_files(store))
    store.delete_topic("topic")
    store = open_small(end(root, store))
    assert (bodies(store), store.marked_end is not None) == ([], True)


def flush_files(store: MessageStore) -> Flush:
    flush = store.begin_flush()
    assert flush is not None
    for file in flush.files:
        file.flush()
    return flush


@pytest.mark.parametrize("end", ENDS)
def test_topic_that_is_made_again_has_what_came_since(end: End) -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    store.delete_topic("topic")
    assert Writer(store).put(make_message(20), 1_000_001).queue_offset == 0
    store.flush()
    store.flush()
    if end is not lose_removal:
        root = end(root, store)
    assert bodies(open_small(root.after_crash())) == [20]


def test_messages_in_the_place_of_cut_ones_are_there() -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    begin = next(store.get("topic", 0, 0, 1)).physical_offset
    store.delete_topic("topic")
    store.truncate(begin)
    Writer(store).put(make_message(30), 1_000_001)
    assert bodies(open_small(root.after_crash())) == [30]


def test_messages_in_the_place_of_lost_ones_are_there() -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    Writer(store).put(make_message(3), 1_000_001)
    store.delete_topic("topic")
    root = root.without_power()
    Writer(open_small(root)).put(make_message(31), 1_000_002)
    root = root.after_crash()
    assert bodies(open_small(root)) == [31]


def test_note_goes_with_the_messages() -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    store.delete_topic("topic")
    notes = root.folder(DELETED_NAME)
    assert [*notes.names()] == ["topic"]
    end = store.log.end
    while store.log.files.end - end < 3 * store.log.files.file_size:
        Writer(store).put(make_message(40, topic="other"), 1_000_001)
    store.expire(end + store.log.files.file_size)
    assert [*notes.names()] == []


def test_note_does_not_count_after_another_broker() -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    store.delete_topic("topic")
    store.close()
    data = root.files[CHECKPOINT].data
    checkpoint = STORE_CHECKPOINT.unpack(data)
    STORE_CHECKPOINT.pack_into(data, 0, checkpoint._replace(commit_log_ms=2_000_000, consume_queue_ms=2_000_000))
    root = root.after_crash()
    open_small(root)
    assert [*root.folder(DELETED_NAME).names()] == []


def test_notes_are_bounded() -> None:
    root = MemoryFolder()
    deletions = Deletions(root, counts=True, most=2)
    deletions.note("a", 100)
    deletions.note("b", 200)
    deletions.note("a", 300)
    with pytest.raises(DiskFull, match="2 deleted topics have messages that have not expired"):
        deletions.note("c", 400)
    assert not deletions.covers("c", 0)
    assert [*root.folder(DELETED_NAME).names()] == ["a", "b"]
    deletions.follow_log(200, 500)
    deletions.note("c", 400)
    assert deletions.covers("c", 399)


def test_topic_stays_without_disk_for_the_note() -> None:
    root = MemoryFolder()
    store = open_small(root)
    fill(store)
    root.folder(DELETED_NAME).free = 0
    with pytest.raises(DiskFull, match="no disk space"):
        store.delete_topic("topic")
    assert bodies(store) == [0, 1, 2]


def test_topic_without_messages_needs_no_note() -> None:
    root = MemoryFolder()
    store = open_small(root)
    store.delete_topic("topic")
    assert DELETED_NAME not in root.folders()
