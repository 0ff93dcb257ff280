"""A store that is cut at an offset: as if what was cut had never come, after any crash on the way; the golden one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.rocketmq.store.cutting import CUT_NAME, note_cut
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from formats.errors import FormatError
from tests.broker.fakes import Crash
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.copying_rig import filled, kept, log_bytes, open_at
from tests.broker.rocketmq.store.message_store_rig import bodies, make_message
from tests.golden.rocketmq.stores import unpack

GOLDEN = StoreOptions(4194304, 6_000_000, 500, 2000)


def begins(count: int = 30) -> list[int]:
    """The offset at which each message of `filled` begins, and the end of all."""
    _, store = filled(0)
    found = [
        Writer(store).put(make_message(number, queue_id=number % 2), 1000 + number).offset for number in range(count)
    ]
    return [*found, store.log.end]


def index_of(store: MessageStore) -> list[list[int]]:
    return [list(store.index.find("topic", f"key{key}", 0, 1 << 40, 64)) for key in range(3)]


def check_cut(root: MemoryFolder, store: MessageStore, offset: int, count: int) -> None:
    """Check that a store has exactly these messages, and can take more."""
    other_root, other = filled(count)
    assert store.log.end == offset
    assert [bodies(store, queue_id=number) for number in (0, 1)] == [
        bodies(other, queue_id=number) for number in (0, 1)
    ]
    assert index_of(store) == index_of(other)
    for number in range(100, 110):
        for each in (store, other):
            Writer(each).put(make_message(number, queue_id=number % 2), 5000 + number)
    store.flush()
    assert log_bytes(store, store.log.begin) == log_bytes(other)
    assert index_of(store) == index_of(other)
    assert {path: data for path, data in kept(root).items() if data.strip(b"\0")} == kept(other_root)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 15, 29, 30])
def test_store_that_is_cut_is_as_one_that_never_had_more(count: int) -> None:
    offset = begins()[count]
    root, store = filled()
    store.flush()
    store.truncate(offset)
    check_cut(root, store, offset, count)


def test_cut_holds_after_a_crash_and_after_a_clean_stop() -> None:
    offset = begins()[11]
    for is_clean in (False, True):
        root, store = filled()
        store.flush()
        store.truncate(offset)
        if is_clean:
            store.close()
        else:
            root = root.after_crash()
        check_cut(root, open_at(root), offset, 11)


def test_cut_that_is_interrupted_anywhere_is_ended_or_was_not_begun() -> None:
    offset = begins()[11]
    ended = whole = 0
    for steps in range(1000):
        root, store = filled()
        store.flush()
        folders = [root, *(folder for each in root.inside.values() for folder in (each, *each.inside.values()))]
        folders += [queue for topic in root.inside["consumequeue"].inside.values() for queue in topic.inside.values()]
        for which, folder in enumerate(folders):
            folder.steps_left = steps // len(folders) if which == steps % len(folders) else 1 << 40
        try:
            store.truncate(offset)
        except Crash:
            root = root.after_crash()
            store = open_at(root)
            if store.log.end == offset:
                ended += 1
                check_cut(root, store, offset, 11)
            else:
                whole += 1
                assert store.log.end == begins()[30]
                assert bodies(store, queue_id=1) == list(range(1, 30, 2))
                assert index_of(store) == index_of(filled()[1])
            assert CUT_NAME not in root.names()
            continue
        if steps > 20 * len(folders):
            break
    assert ended > 3
    assert whole > 1


def test_damage_that_a_cut_leaves_at_a_loss_of_power_is_cut_too() -> None:
    """Pages of a cut log reach the disk in any order: the first may be zero while later ones are still there."""
    places = begins()
    root, store = filled()
    store.flush()
    note_cut(root, store.checkpoint.commit_log_ms, places[11])
    file, place = store.log.files.place(places[11])
    file.buffer[place : place + 60] = bytes(60)
    root = root.after_crash()
    store = open_at(root)
    check_cut(root, store, places[11], 11)


def test_note_of_a_cut_does_not_count_when_the_store_was_used_since() -> None:
    places = begins()
    root, store = filled()
    store.flush()
    note_cut(root, store.checkpoint.commit_log_ms - 1, places[11])
    root = root.after_crash()
    assert open_at(root).log.end == places[30]
    assert CUT_NAME not in root.names()


def test_loss_of_power_in_a_cut_leaves_it_to_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint's last change had not been flushed when the cut began."""
    places = begins()
    root, store = filled()
    for number in range(3):
        Writer(store).put(make_message(number), 5000 + number)
        flush = store.begin_flush()
        assert flush is not None
        for file in flush.files:
            file.flush()
        store.end_flush(flush)

    def crash(end: int) -> None:
        raise Crash

    monkeypatch.setattr(store.log, "cut", crash)
    with pytest.raises(Crash):
        store.truncate(places[11])
    assert open_at(root.without_power()).log.end == places[11]


def test_flush_that_is_under_way_marks_nothing_that_was_cut() -> None:
    places = begins()
    root, store = filled()
    flush = store.begin_flush()
    _, note = store.begin_log_flush()
    assert flush is not None
    store.truncate(places[11])
    store.end_flush(flush)
    note()
    assert store.flushed <= places[11]
    root = root.after_crash()
    check_cut(root, open_at(root), places[11], 11)


@pytest.mark.parametrize("count", [0, 11])
def test_mark_on_the_disk_does_not_stay_behind_the_cut(count: int) -> None:
    """The mark in memory has gone back, as nothing after it is confirmed, and the one on the disk has not."""
    places = begins()
    root, store = filled()
    store.flush()
    store.hold_back(places[0])
    flush = store.begin_flush()
    assert flush is not None
    for file in flush.files:
        file.flush()
    store.end_flush(flush)
    assert store.mark is not None
    assert store.mark.log_end == places[0]
    store.truncate(places[count])
    assert open_at(root.without_power()).log.end == places[count]


def test_log_is_cut_between_records_only() -> None:
    places = begins()
    root, store = filled()
    before = root.contents()
    with pytest.raises(FormatError, match="Record"):
        store.truncate(places[11] + 1)
    with pytest.raises(ValueError, match="is not between 0 and"):
        store.truncate(places[30] + 1)
    assert root.contents() == before


def test_nothing_is_cut_without_disk_for_the_note() -> None:
    places = begins()
    root, store = filled()
    store.flush()
    root.free = 0
    with pytest.raises(DiskFull):
        store.truncate(places[11])
    assert store.log.end == places[30]
    assert CUT_NAME not in root.names()
    assert open_at(root.after_crash()).log.end == places[30]


def test_golden_store_is_cut_where_the_original_cut_it(tmp_path: Path) -> None:
    """Broker c1 had 5 messages of its own after offset 1305, of which Apache's c1 keeps nothing."""
    (before,) = unpack("ha-truncate/before-c1-diverged", tmp_path / "before")
    after, _ = unpack("ha-truncate/after", tmp_path / "after")
    store = open_store(FileFolder(before), GOLDEN, lambda ms: f"{ms:017d}")
    assert store.log.end == 2615
    ends = {key: queue.end for key, queue in store.queues.items()}
    store.truncate(1305)
    (log,) = (before / "commitlog").iterdir()
    assert log.read_bytes()[:1305] == (after / "commitlog" / log.name).read_bytes()[:1305]
    assert not any(log.read_bytes()[1305:])
    assert sum(ends.values()) - sum(queue.end for queue in store.queues.values()) == 5
    for key in ends:
        queue = before / "consumequeue" / key[0] / str(key[1]) / "00000000000000000000"
        size = store.queues[key].end * 20
        data = queue.read_bytes()
        assert data[:size] == (after / queue.relative_to(before)).read_bytes()[:size]
        assert not any(data[size:])
    store.close()
