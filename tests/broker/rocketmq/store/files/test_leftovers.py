"""Stores in which the original has cut the log: the rest of the old log is cut off, and damage is still refused."""

from __future__ import annotations

import random
import struct
from functools import partial
from pathlib import Path

import pytest

from broker.rocketmq.assembly.identity import epoch_begins
from broker.rocketmq.store.errors import StoreFileDamaged
from broker.rocketmq.store.files.flush_mark import MARK_NAME
from broker.rocketmq.store.message_store import ABORT, CHECKPOINT, MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.config_files import ConfigFile
from broker.shell.files.folders import FileFolder
from formats.rocketmq.files.checkpoints import STORE_CHECKPOINT, StoreCheckpoint
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.files.leftovers_rig import CUT, END, FIRST, GOLDEN, Golden
from tests.broker.rocketmq.store.message_store_rig import bodies, make_message
from tests.golden.rocketmq.stores import records, unpack

STORED_AT = 56


@pytest.mark.parametrize("crashed", [False, True])
def test_rest_of_the_golden_log_is_cut_off(tmp_path: Path, crashed: bool) -> None:
    golden = Golden(tmp_path)
    golden.check(golden.open(crashed=crashed))


def test_rest_whose_records_begin_where_the_log_ends_is_cut_off(tmp_path: Path) -> None:
    golden = Golden(tmp_path)
    # Two old records of the same length as the new ones, made from later ones by an older time.
    later = (golden.after / "commitlog" / FIRST).read_bytes()
    golden.log[END : END + 5 * 262] = later[END : END + 2 * 261].ljust(5 * 262, b"\0")
    for at in (END, END + 261):
        golden.log[at + STORED_AT : at + STORED_AT + 8] = struct.pack(">q", golden.new_ms[1044] + 5)
    golden.check(golden.open(crashed=False))


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("begins", [(), (0,), (0, CUT, 2100), (0, 4_000)])
def test_rest_is_refused_without_the_epoch_that_it_is_older_than(
    tmp_path: Path, crashed: bool, begins: tuple[int, ...]
) -> None:
    golden = Golden(tmp_path)
    if not crashed and not begins:
        # Nothing tells that the queues end elsewhere than they seem to.
        assert golden.open(crashed=crashed, begins=begins).log.end == 2615
        return
    with pytest.raises(StoreFileDamaged, match="but a sound record is at 2091"):
        golden.open(crashed=crashed, begins=begins)


def test_rest_that_is_not_older_is_refused(tmp_path: Path) -> None:
    golden = Golden(tmp_path)
    golden.log[2353 + STORED_AT : 2353 + STORED_AT + 8] = struct.pack(">q", golden.new_ms[CUT])
    with pytest.raises(StoreFileDamaged, match="but a sound record is at 2091"):
        golden.open(crashed=False)


@pytest.mark.parametrize("at", [261, 1044, 1305, 1566, 2088, 2349, 3393])
@pytest.mark.parametrize("crashed", [False, True])
def test_damage_in_the_log_of_the_original_is_refused(tmp_path: Path, at: int, crashed: bool) -> None:
    root, _ = unpack("ha-truncate/after", tmp_path)
    path = root / "commitlog" / FIRST
    data = bytearray(path.read_bytes())
    data[at + 84 + 6] ^= 1
    path.write_bytes(data)
    if crashed:
        (root / "abort").write_bytes(b"")
    else:
        # The last dispatched message does not exist: queues are not relied upon, and all records are read.
        checkpoint = STORE_CHECKPOINT.unpack((root / "checkpoint").read_bytes())
        changed = checkpoint._replace(consume_queue_ms=checkpoint.consume_queue_ms + 1)
        (root / "checkpoint").write_bytes(STORE_CHECKPOINT.pack(changed).ljust(4096, b"\0"))
    with pytest.raises(StoreFileDamaged):
        open_store(FileFolder(root), GOLDEN, lambda ms: f"{ms:017d}", epoch_begins=(0, 1305, 2088))


def file_in(folder: Path, name: str) -> ConfigFile:
    return ConfigFile(folder / name)


@pytest.mark.parametrize("name", ["ha-truncate/after", "ha-controller/stores"])
def test_sound_stores_of_the_original_keep_their_queues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    for root in unpack(name, tmp_path):
        begins = epoch_begins(partial(file_in, root))
        end = max(at for at, _ in records(root))
        assert len(begins) > 2
        store = open_store(FileFolder(root), GOLDEN, lambda ms: f"{ms:017d}", epoch_begins=begins)
        assert end < store.log.end == store.checkpoint.confirm_offset
        store.close()
    assert "rebuilt from it" not in caplog.text


# -- any two logs that part

SMALL = StoreOptions(commit_log_file_bytes=1024, consume_queue_file_bytes=100, index_slots=7, index_entries=10)


def fill(choose: random.Random, store: MessageStore, count: int, begin: int, ms: int) -> None:
    for number in range(begin, begin + count):
        message = make_message(number, queue_id=choose.randrange(2), size=choose.randrange(3, 60))
        Writer(store).put(message, ms + 10 * number)


def as_the_original(folder: MemoryFolder, last_ms: int, *, crashed: bool) -> None:
    """Leave what the original leaves: no mark of ours, and a checkpoint that counts all as flushed."""
    folder.files.pop(MARK_NAME, None)
    checkpoint = STORE_CHECKPOINT.pack(StoreCheckpoint(last_ms, last_ms, 0, 0, 0))
    folder.files[CHECKPOINT].data[: len(checkpoint)] = checkpoint
    if crashed:
        folder.open(ABORT, 8).close()


def overlay(new: MemoryFolder, old: MemoryFolder, width: int, unit: int) -> None:
    """Put the bytes of an old file after the end of a new one, from the first unwritten unit on."""
    for name, content in new.files.items():
        if name in old.files:
            end = len(content.data.rstrip(b"\0"))
            end = min(width, -(-end // unit) * unit)
            content.data[end:] = old.files[name].data[end:]
            content.backed = len(content.data)


def parted(seed: int, *, crashed: bool) -> tuple[MemoryFolder, MessageStore, int]:
    """Make a store with the rest of another log; a store with the log that it has; where the new epoch begins."""
    choose = random.Random(seed)
    common, lost, kept = choose.randrange(0, 12), choose.randrange(1, 12), choose.randrange(1, 12)
    folders = [MemoryFolder(chunk=64) for _ in range(3)]
    stores = [open_store(folder, SMALL, lambda ms: f"{ms:017d}") for folder in folders]
    for store in stores:
        fill(random.Random(seed), store, common, 0, 10_000)
    cut = stores[0].log.end
    fill(random.Random(seed + 1), stores[0], lost, 100, 10_000)
    for store in stores[1:]:
        fill(random.Random(seed + 2), store, kept, 200, 20_000)
    for store in stores[:2]:
        store.close()
    old, new, _ = folders
    overlay(new.folder("commitlog"), old.folder("commitlog"), SMALL.commit_log_file_bytes, 1)
    for queue_id in ("0", "1"):
        mine, theirs = (each.folder("consumequeue").folder("topic").folder(queue_id) for each in (new, old))
        overlay(mine, theirs, 100, 20)
    as_the_original(new, 20_000 + 10 * (199 + kept), crashed=crashed)
    return new, stores[2], cut


@pytest.mark.parametrize("crashed", [False, True])
def test_rest_of_any_log_is_cut_off(crashed: bool) -> None:
    cut_off = aligned = 0
    for seed in range(120):
        folder, expected, cut = parted(seed, crashed=crashed)
        before = folder.contents()
        store = open_store(folder, SMALL, lambda ms: f"{ms:017d}", epoch_begins=(0, cut))
        if crashed and store.log.end != expected.log.end:
            # The rest begins with a whole record at the end of the log, which the original takes, too.
            aligned += 1
            assert store.log.read(expected.log.end).record.stored_ms < 20_000
            continue
        assert store.log.end == expected.log.end
        assert [bodies(store, queue_id=each) for each in (0, 1)] == [bodies(expected, queue_id=each) for each in (0, 1)]
        cut_off += before != folder.contents()
    assert cut_off > 40
    assert aligned < 10


def test_damage_of_any_log_with_epochs_is_refused() -> None:
    """Damage a log whose masters have clocks that may go back from one to the next."""
    for seed in range(120):
        choose = random.Random(seed)
        folder = MemoryFolder(chunk=64)
        store = open_store(folder, SMALL, lambda ms: f"{ms:017d}")
        begins, number = [], 0
        for _ in range(choose.randrange(1, 4)):
            begins.append(store.log.end)
            count = choose.randrange(1, 8)
            fill(choose, store, count, number, choose.randrange(10_000, 20_000))
            number += count
        # A crash has the last file looked at.
        begin = store.log.files.end - SMALL.commit_log_file_bytes
        found = [each.offset for each in store.log.records(0) if each.offset >= begin]
        latest = max(each.record.stored_ms for each in store.log.records(0))
        store.close()
        if len(found) < 2:
            continue
        as_the_original(folder, latest, crashed=True)
        harmed = choose.choice(found[:-1])
        name = max(folder.folder("commitlog").files)
        folder.folder("commitlog").files[name].data[harmed - begin + 4] ^= 0xFF
        with pytest.raises(StoreFileDamaged):
            open_store(folder, SMALL, lambda ms: f"{ms:017d}", epoch_begins=begins)
