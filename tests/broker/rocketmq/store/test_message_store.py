"""The store of a broker: the golden one written again byte for byte, and what every kind of crash leaves of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.rocketmq.store.commit_log import CommitLog, Found, Message
from broker.rocketmq.store.errors import DiskFull, StoreFileDamaged, TooLarge
from broker.rocketmq.store.files.flush_mark import FLUSH_MARK, MARK_NAME
from broker.rocketmq.store.message_store import CHECKPOINT, MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES
from formats.rocketmq.files.index import INDEX_HEADER, tag_index_key
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import (
    GOLDEN,
    SMALL,
    bodies,
    copy_zero_ended,
    due_ms,
    make_message,
    open_small,
    put_zero_ended,
)
from tests.families import examples
from tests.golden.rocketmq.stores import records, unpack

WRITTEN = ("commitlog", "consumequeue", "index", "checkpoint")


def test_golden_store_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    """The same messages at the same times make the same commit log, consume queues, index files and checkpoint."""
    (golden,) = unpack("store", tmp_path, without=("timerwheel", "timerlog"))
    names = iter(sorted(path.name for path in (golden / "index").iterdir()))
    root = MemoryFolder()
    store = open_store(root, GOLDEN, lambda ms: next(names), due_ms)
    for offset, record in records(golden):
        if isinstance(record, Record):
            message = Message(
                record.topic,
                record.queue_id,
                record.flag,
                record.system_flags,
                record.born_ms,
                record.born_host,
                record.store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
                record.body,
                record.properties,
            )
            stored = Writer(store).put(message, record.stored_ms)
            assert (stored.offset, stored.queue_offset) == (offset, record.queue_offset)
    store.close()
    theirs = {
        str(path.relative_to(golden)): path.read_bytes()
        for path in golden.rglob("*")
        if path.is_file() and path.relative_to(golden).parts[0] in WRITTEN
    }
    ours = root.contents()
    assert len(ours.pop(MARK_NAME)) == FLUSH_MARK.size
    assert ours == theirs


@pytest.mark.slow
def test_golden_store_is_opened_and_left_as_it_was(tmp_path: Path) -> None:
    (golden,) = unpack("store", tmp_path, without=("timerwheel", "timerlog"))
    before = {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()}
    store = open_store(FileFolder(golden), GOLDEN, lambda ms: f"{ms:017d}", due_ms)
    assert store.queues["GOne", 0].end == 650
    assert [
        store.log.read(entry.physical_offset).record.queue_offset for entry in store.get("GOne", 0, 640, 99)
    ] == list(range(640, 650))
    store.close()
    assert {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("lost", ["consumequeue", "index", None])
def test_golden_store_is_mended_after_a_crash(tmp_path: Path, lost: str | None) -> None:
    """Files other than the commit log are rebuilt from it if they are missing."""
    (golden,) = unpack("store", tmp_path, without=("timerwheel", "timerlog"))
    root = FileFolder(golden)
    names = iter(sorted(path.name for path in (golden / "index").iterdir()))
    wanted = {path: path.read_bytes() for path in golden.rglob("*") if path.is_file() and path.parent.name.isdecimal()}
    (golden / "abort").touch()
    if lost is not None:
        root.remove_folder(lost)
    store = open_store(root, GOLDEN, lambda ms: next(names, f"{ms:017d}"), due_ms)
    assert {path: path.read_bytes() for path in wanted} == wanted
    for offset, record in records(golden):
        if isinstance(record, Record) and record.topic == "GNormal":
            ends = (record.stored_ms - 1000, record.stored_ms + 1000)
            assert (
                offset in store.index.find_text(tag_index_key("GNormal", "TagA"), *ends, 1 << 30)
                or b"TagA" not in record.properties
            )
    store.close()


def test_messages_are_read_again_after_a_clean_stop() -> None:
    root = MemoryFolder()
    store = open_small(root)
    for number in range(50):
        stored = Writer(store).put(make_message(number, queue_id=number % 2), 1_000_000 + number)
        assert stored.queue_offset == number // 2
    store.close()
    assert "abort" not in root.names()
    again = open_small(root.after_crash())
    assert bodies(again) == list(range(0, 50, 2))
    assert bodies(again, queue_id=1) == list(range(1, 50, 2))
    assert Writer(again).put(make_message(50), 1_000_050).queue_offset == 25
    assert again.index.find("topic", "id7", 0, 1 << 40, 5) == [again.queues["topic", 1].get(3).physical_offset]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_killed_process_leaves_a_prefix_of_the_messages(data: st.DataObject) -> None:
    """Killed anywhere, also in the middle of a write: all messages that were stored are there, in their queues."""
    root = MemoryFolder()
    store = open_small(root)
    count = data.draw(st.integers(0, 40))
    for number in range(count):
        Writer(store).put(
            make_message(number, queue_id=number % 3, size=data.draw(st.integers(2, 300))), 1_000_000 + number * 700
        )
        if data.draw(st.integers(0, 9)) == 0:
            store.flush()
    torn = data.draw(st.binary(max_size=60))
    end = store.log.end
    crashed = root.after_crash()
    if torn and store.log.files.files:
        file, place = store.log.files.place(end - 1)
        content = crashed.folder("commitlog").files[file.name]
        torn = torn[: len(content.data) - place - 1]
        content.data[place + 1 : place + 1 + len(torn)] = torn
        content.backed = max(content.backed, place + 1 + len(torn))
    again = open_small(crashed)
    assert again.log.end == end
    for queue_id in range(3):
        assert bodies(again, queue_id=queue_id) == list(range(queue_id, count, 3))
        for number in range(queue_id, count, 3):
            assert len(again.index.find("topic", f"id{number}", 0, 1 << 40, 5)) == 1
    assert Writer(again).put(make_message(count, queue_id=count % 3), 2_000_000).queue_offset == count // 3


def test_consume_queue_that_is_ahead_is_cut() -> None:
    root = MemoryFolder()
    store = open_small(root)
    offsets = [Writer(store).put(make_message(number), 1_000_000).offset for number in range(3)]
    crashed = root.after_crash()
    log = crashed.folder("commitlog").files["00000000000000000000"].data
    log[offsets[2] :] = bytes(len(log) - offsets[2])
    again = open_small(crashed)
    assert bodies(again) == [0, 1]
    assert Writer(again).put(make_message(9), 1_000_001).offset == offsets[2]
    assert bodies(again) == [0, 1, 9]


@pytest.mark.parametrize("kept", [0, 1, 5])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
def test_entries_cut_by_recovery_do_not_come_back_once_the_log_has_grown_over_them(
    kept: int, killed: bool, stopped: bool
) -> None:
    """A loss of power spares the entry of a message that it takes from the log, and another one follows."""
    root = MemoryFolder()
    store = open_small(root)
    for number in range(kept):
        Writer(store).put(make_message(number), 1_000_000)
    if kept:
        # The last messages in the index are read again, and their queues flushed.
        for number in range(50, 53):
            Writer(store).put(make_message(number, queue_id=2), 1_000_000)
    store.flush()
    lost = Writer(store).put(make_message(99), 1_000_000).offset
    root = root.after_crash()
    begin = lost - lost % SMALL.commit_log_file_bytes
    file = root.folder("commitlog").files[f"{begin:020d}"]
    file.data[lost - begin :] = bytes(len(file.data) - (lost - begin))
    root.settle()
    again = open_small(root)
    if killed:
        root = root.after_crash()
        again = open_small(root)
    for number in range(5):
        Writer(again).put(make_message(number, queue_id=1, properties=b""), 1_000_001)
    if stopped:
        # The next start trusts the entries.
        again.close()
    else:
        again.flush()
    # The name of the mark, a file of our own, is on the disk by then.
    root.flush()
    third = open_small(root.without_power())
    assert bodies(third) == list(range(kept))
    assert bodies(third, queue_id=1) == list(range(5))
    assert third.index.find("topic", "id99", 0, 1 << 40, 5) == []


def put_again(store: MessageStore, before: int, since: int) -> None:
    """Store messages of a topic, some of which are flushed with all else, remove it, and store others of it."""
    for number in range(before):
        Writer(store).put(make_message(number), 1_000_000)
        if number == 2:
            store.flush()
    store.delete_topic("topic")
    for number in range(since):
        Writer(store).put(make_message(100 + number), 1_000_001)


@pytest.mark.parametrize("before", [3, 6])
@pytest.mark.parametrize("since", [1, 3, 8])
@pytest.mark.parametrize("has_power_failed", [False, True])
def test_topic_that_was_removed_and_made_again_has_its_new_messages_after_a_crash(
    before: int, since: int, has_power_failed: bool
) -> None:
    root = MemoryFolder()
    store = open_small(root)
    put_again(store, before, since)
    crashed = root.after_crash()
    if has_power_failed:
        old = MemoryFolder()
        with_old = open_small(old)
        for number in range(before):
            Writer(with_old).put(make_message(number), 1_000_000)
        crashed.folder("consumequeue").inside["topic"] = old.after_crash().folder("consumequeue").folder("topic")
    again = open_small(crashed)
    assert bodies(again) == list(range(100, 100 + since))
    assert Writer(again).put(make_message(200), 1_000_002).queue_offset == since
    again.flush()
    assert bodies(open_small(crashed.after_crash())) == [*range(100, 100 + since), 200]


def test_topic_may_be_removed_while_its_queues_are_flushed(tmp_path: Path) -> None:
    store = open_store(FileFolder(tmp_path), SMALL, lambda ms: f"{ms:017d}")
    Writer(store).put(make_message(0), 1_000_000)
    flush = store.begin_flush()
    assert flush is not None
    store.delete_topic("topic")
    for file in flush.files:
        file.flush()
    Writer(store).put(make_message(1, topic="other"), 1_000_000)
    store.delete_topic("other")
    store.close()


def test_removal_of_a_topic_goes_to_the_disk() -> None:
    root = MemoryFolder()
    store = open_small(root)
    for number, topic in enumerate(("topic", "other")):
        Writer(store).put(make_message(number, topic=topic), 1_000_000)
    store.flush()
    store.delete_topic("topic")
    Writer(store).put(make_message(2, topic="other"), 1_000_000)
    flush = store.begin_flush()
    assert flush is not None
    queues = root.folder("consumequeue")
    assert any(each is queues for each in flush.files)


def test_damage_before_sound_messages_is_refused() -> None:
    root = MemoryFolder()
    store = open_small(root)
    offsets = [Writer(store).put(make_message(number), 1_000_000).offset for number in range(3)]
    store.close()
    crashed = root.after_crash()
    crashed.folder("consumequeue").inside.clear()
    crashed.folder("commitlog").files["00000000000000000000"].data[offsets[1] + 100] ^= 1
    with pytest.raises(
        StoreFileDamaged, match=rf"00000000000000000000 at offset {offsets[1]}: its checksum .* bring the file"
    ):
        open_small(crashed)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["00000000000000000000", "00000000000000002048"], "00000000000000002048 at offset 0: does not follow"),
        (["00000000000000000100"], "00000000000000000100 at offset 0: does not follow"),
    ],
)
def test_files_that_do_not_make_a_row_are_refused(names: list[str], reason: str) -> None:
    root = MemoryFolder()
    for name in names:
        root.folder("commitlog").open(name, 1024)
    with pytest.raises(StoreFileDamaged, match=reason):
        open_small(root)


def test_file_of_another_size_is_refused() -> None:
    root = MemoryFolder()
    root.folder("commitlog").open("00000000000000000000", 2048)
    with pytest.raises(
        StoreFileDamaged, match="has 2048 bytes, but the files of this store have 1024; set the file size"
    ):
        open_small(root)


class Reads:
    """A record of the offsets from which stores have looked for the end of the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begins: list[int] = []
        recover = CommitLog.recover

        def counted(log: CommitLog, begin: int, *how: Any) -> Iterator[Found]:
            self.begins.append(begin)
            return recover(log, begin, *how)

        monkeypatch.setattr(CommitLog, "recover", counted)


def test_after_a_crash_nothing_is_read_that_was_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    root = MemoryFolder()
    store = open_small(root)
    places = []
    for number in range(45):
        places.append(Writer(store).put(make_message(number, queue_id=number % 3), 1_000_000 + number).offset)
        if number == 39:
            store.flush()
    reads = Reads(monkeypatch)
    again = open_small(root.after_crash())
    # The last file of the index has only message 39 of those, which is not trusted, nor is the last one before it.
    assert reads.begins == [places[37]]
    assert again.log.end == store.log.end
    for number, place in enumerate(places):
        assert again.index.find("topic", f"id{number}", 0, 1 << 40, 5) == [place]
    assert [bodies(again, queue_id=each) for each in range(3)] == [list(range(each, 45, 3)) for each in range(3)]


def test_mark_counts_for_nothing_once_the_original_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    root = MemoryFolder()
    store = open_small(root)
    for number in range(20):
        Writer(store).put(make_message(number), 1_000_000 + number)
    store.flush()
    marked = bytes(root.files[MARK_NAME].data)
    for number in range(20, 40):
        Writer(store).put(make_message(number), 1_000_000 + number)
    store.flush()
    for mark in (marked, bytes(len(marked))):
        crashed = root.after_crash()
        crashed.files[MARK_NAME].data[:] = mark
        reads = Reads(monkeypatch)
        again = open_small(crashed)
        assert reads.begins == [0]
        assert bodies(again) == list(range(40))


# No multiple of the size of an entry.
BLOCK = 28


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_blocks_written_since_the_last_flush_may_be_old_or_new(data: st.DataObject) -> None:
    """Power failed: of queues and index each block is as it was at the last flush, or at the end."""
    root = MemoryFolder()
    store = open_small(root)
    flushed, late = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 25))
    places = []
    for number in range(flushed + late):
        places.append(Writer(store).put(make_message(number, queue_id=number % 2), 1_000_000 + number).offset)
        if number + 1 == flushed:
            store.flush()
            before = root.after_crash().contents()
    crashed = root.after_crash()
    folders = [crashed.folder("index")]
    folders += [crashed.folder("consumequeue").folder("topic").folder(str(each)) for each in range(2)]
    paths = ["index", "consumequeue/topic/0", "consumequeue/topic/1"]
    for path, folder in zip(paths, folders, strict=True):
        for name, content in folder.files.items():
            old = before.get(f"{path}/{name}", bytes(len(content.data)))
            for at in range(0, len(content.data), BLOCK):
                if content.data[at : at + BLOCK] != old[at : at + BLOCK] and data.draw(st.booleans()):
                    content.data[at : at + BLOCK] = old[at : at + BLOCK]
    again = open_small(crashed)
    for queue_id in range(2):
        assert bodies(again, queue_id=queue_id) == list(range(queue_id, flushed + late, 2))
    for number, place in enumerate(places):
        assert again.index.find("topic", f"id{number}", 0, 1 << 40, 9) == [place]
        assert place in again.index.find("topic", f"key{number % 3}", 0, 1 << 40, 99)


class NotingFolder(MemoryFolder):
    """Notes which folders are in it each time that it is flushed."""

    seen: tuple[list[str], ...] = ()

    def flush(self) -> None:
        super().flush()
        self.seen += (self.folders(),)


def test_folders_of_a_new_store_outlive_a_loss_of_power() -> None:
    root = NotingFolder()
    open_small(root)
    assert root.seen == (["commitlog", "consumequeue", "index"],)


def test_folders_that_a_killed_process_has_made_are_flushed_by_the_next() -> None:
    root = MemoryFolder()
    Writer(open_small(root)).put(make_message(0), 1_000_000)
    crashed = root.after_crash()
    again = open_small(crashed)
    Writer(again).put(make_message(1), 1_000_000)
    flush = again.begin_flush()
    assert flush is not None
    queues = crashed.folder("consumequeue")
    topic = queues.folder("topic")
    for folder in (crashed.folder("commitlog"), topic.folder("0"), topic, queues, crashed.folder("index")):
        assert any(each is folder for each in flush.files)


def flush_log(store: MessageStore) -> None:
    for step in store.begin_log_flush():
        step()


def test_log_that_is_flushed_during_a_flush_has_its_new_files_in_the_folder() -> None:
    """The flush in a thread will take the folder to the disk, too, but that may be later."""
    root = MemoryFolder()
    store = open_small(root)
    folder = root.folder("commitlog")
    Writer(store).put(make_message(0), 1_000_000)
    flush = store.begin_flush()
    assert flush is not None
    assert folder.unflushed == [("00000000000000000000", None)]
    Writer(store).put(make_message(1), 1_000_000)
    flush_log(store)
    assert folder.unflushed == []
    # A file that is made during a flush is not in the folder for good by its end.
    store.end_flush(flush)
    Writer(store).put(make_message(2), 1_000_000)
    flush = store.begin_flush()
    assert flush is not None
    assert folder not in flush.files
    Writer(store).put(make_message(3, size=800), 1_000_000)
    assert folder.unflushed == [("00000000000000001024", None)]
    store.end_flush(flush)
    flush_log(store)
    assert folder.unflushed == []


@pytest.mark.parametrize(("later_ms", "has_headers"), [(1, False), (0, True)])
def test_index_files_filled_during_a_flush_are_made_again_after_a_loss_of_power(
    later_ms: int, has_headers: bool
) -> None:
    """The checkpoint of the first of two flushes reached the disk, and the log, but none of the files after these.

    There may be headers of the index files.
    """
    root = MemoryFolder()
    store = open_small(root)
    for number in range(4):
        Writer(store).put(make_message(number), 1_000_000)
    for numbers in (range(4, 8), range(8, 12)):
        flush = store.begin_flush()
        assert flush is not None
        for number in numbers:
            Writer(store).put(make_message(number), 1_000_000 + later_ms)
        for file in flush.files:
            file.flush()
        store.end_flush(flush)
    root.open(CHECKPOINT, CHECKPOINT_BYTES).flush()
    flush_log(store)
    assert store.checkpoint.index_ms == 1_000_000
    crashed = root.without_power()
    if has_headers:
        for name, content in root.folder("index").files.items():
            crashed.folder("index").files[name].data[: INDEX_HEADER.size] = content.data[: INDEX_HEADER.size]
    again = open_small(crashed)
    assert bodies(again) == list(range(12))
    for number in range(12):
        offset = again.queues["topic", 0].get(number).physical_offset
        assert again.index.find("topic", f"id{number}", 0, 1 << 60, 1) == [offset]


def test_checkpoint_that_is_on_the_disk_before_the_mark_does_not_keep_the_broker_from_starting() -> None:
    """Nor do the entries of messages in a file of the log that was not on the disk yet."""
    root = MemoryFolder()
    store = open_small(root)
    Writer(store).put(make_message(0), 1_000_000)
    store.flush()
    Writer(store).put(make_message(1), 1_000_001)
    flush = store.begin_flush()
    assert flush is not None
    for file in flush.files:
        file.flush()
    store.end_flush(flush)
    Writer(store).put(make_message(2, size=800), 1_000_002)
    for queue_file in (root.open(CHECKPOINT, CHECKPOINT_BYTES), *store.queues["topic", 0].unflushed()):
        queue_file.flush()
    assert bodies(open_small(root.without_power())) == [0, 1]


@pytest.mark.parametrize("lost", [1, 10])
def test_message_whose_properties_are_not_all_on_the_disk_is_cut_off(lost: int) -> None:
    """Power failed between two sectors of its record: the body is there, of the properties the end is not."""
    root = MemoryFolder()
    store = open_small(root)
    size = Writer(store).put(make_message(0), 1_000_000).size
    end = 512 + lost
    Writer(store).put(make_message(2, size=20 + end - 2 * size), 1_000_000)
    assert store.log.end == end
    torn = root.after_crash()
    torn.folder("commitlog").files["00000000000000000000"].data[512:end] = bytes(lost)
    assert bodies(open_small(torn)) == [0]


def test_torn_record_at_the_start_of_a_file_is_cut_off() -> None:
    """The file is closed, which nothing that has been read there may prevent."""
    root = MemoryFolder()
    store = open_small(root)
    Writer(store).put(make_message(0), 1_000_000)
    Writer(store).put(make_message(1, size=800), 1_000_000)
    torn = root.after_crash()
    torn.folder("commitlog").files["00000000000000001024"].data[100] ^= 1
    assert bodies(open_small(torn)) == [0]


def test_message_whose_properties_end_with_zeros_outlives_a_crash() -> None:
    root = MemoryFolder()
    store = open_small(root)
    put_zero_ended(store)
    assert bodies(open_small(root.after_crash())) == [2]
    Writer(store).put(make_message(3), 1_000_000)
    again = open_small(root.after_crash())
    assert bodies(again) == [2, 3]
    assert decode_properties(again.log.read(0).record.properties) == {"TAGS": "a", "x": "\0" * 420}


def test_properties_that_end_with_a_zero_and_have_no_room_for_a_separator_are_refused() -> None:
    store = open_store(MemoryFolder(), GOLDEN, lambda ms: f"{ms:017d}")
    with pytest.raises(TooLarge, match="32767 bytes of properties have no room for the separator"):
        Writer(store).put(make_message(0, properties=b"x\1" + b"y" * 0x7FFC + b"\0"), 1_000_000)
    assert store.log.end == 0
    Writer(store).put(make_message(0, properties=b"x\1" + b"y" * 0x7FFB + b"\0"), 1_000_000)
    Writer(store).put(make_message(1, properties=b"x\1" + b"y" * 0x7FFD), 1_000_000)
    assert bodies(store) == [0, 1]


@pytest.mark.parametrize("behind", ["record", "blank", "torn record", "nothing"])
def test_zeros_that_the_original_has_written_count_if_anything_is_behind_them(behind: str) -> None:
    """The original adds no separator after properties that end with zeros."""
    root = MemoryFolder()
    store = open_small(root)
    copy_zero_ended(store)
    end = store.log.end
    if behind != "nothing":
        Writer(store).put(make_message(3, size=400 if behind == "blank" else 20), 1_000_000)
    torn = root.after_crash()
    files = torn.folder("commitlog").files
    if behind == "blank":
        assert len(files) == 2
        del files["00000000000000001024"]
    elif behind == "torn record":
        files["00000000000000000000"].data[end + 100] ^= 1
    again = open_small(torn)
    assert bodies(again) == {"record": [2, 3], "blank": [2], "torn record": [], "nothing": []}[behind]
    assert again.log.end == {"record": store.log.end, "blank": 1024, "torn record": 0, "nothing": 0}[behind]


def test_message_for_which_there_is_no_disk_is_not_stored() -> None:
    root = MemoryFolder()
    store = open_small(root)
    Writer(store).put(make_message(0), 1_000_000)
    end = store.log.end
    root.folder("commitlog").free = 0
    # Of the other folders each has a disk of its own here.
    with pytest.raises(DiskFull, match="no disk space for"):
        Writer(store).put(make_message(1), 1_000_000)
    assert store.log.end == end
    again = open_small(root.after_crash())
    assert bodies(store) == bodies(again) == [0]


def test_new_store_without_disk_for_its_first_file_is_refused() -> None:
    root = MemoryFolder(free=0)
    with pytest.raises(DiskFull, match="/checkpoint: no disk space for 4096 bytes"):
        open_small(root)
    assert "checkpoint" not in root.names()


def test_message_larger_than_a_file_is_refused() -> None:
    store = open_small(MemoryFolder())
    with pytest.raises(TooLarge, match="does not fit into a file of 1024"):
        Writer(store).put(make_message(0, size=1000), 1_000_000)
    assert store.log.end == 0


def test_old_files_go_with_what_refers_to_them() -> None:
    root = MemoryFolder()
    store = open_small(root)
    for number in range(60):
        Writer(store).put(make_message(number, queue_id=number % 2), 1_000_000 + number)
    assert store.expire(5000) == 4
    first = store.queues["topic", 0].begin
    assert store.log.begin == 4096
    assert bodies(store) == []
    kept = [int(bytes(store.log.read(e.physical_offset).record.body)) for e in store.get("topic", 0, first, 99)]
    assert kept == list(range(first * 2, 60, 2))
    assert store.index.find("topic", "id0", 0, 1 << 40, 5) == []
    store.close()
    again = open_small(root.after_crash())
    assert again.queues["topic", 0].begin == first
    assert Writer(again).put(make_message(60), 2_000_000).queue_offset == 30


def test_queue_finds_messages_by_time() -> None:
    store = open_small(MemoryFolder())
    for number in range(20):
        Writer(store).put(make_message(number), 1_000_000 + number * 10)
    assert [store.find_time("topic", 0, ms) for ms in (0, 1_000_000, 1_000_051, 1_000_190, 2_000_000)] == [
        0,
        0,
        6,
        19,
        20,
    ]
    assert store.find_time("none", 0, 5) == 0


def test_transactions_that_are_not_decided_are_in_no_queue() -> None:
    store = open_small(MemoryFolder())
    Writer(store).put(make_message(0, system_flags=4), 1_000_000)
    Writer(store).put(make_message(1, system_flags=12), 1_000_000)
    Writer(store).put(make_message(2, system_flags=8), 1_000_000)
    assert bodies(store) == [2]
