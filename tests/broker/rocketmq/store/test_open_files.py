"""The files that a store has open: what happens where the system opens no more of them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.rig import Rig
from tests.broker.rocketmq.store.message_store_rig import SMALL, bodies, make_message, open_small


@contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """Leave the process `count` descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0] + 8, 64), hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def test_message_for_a_queue_that_cannot_be_made_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    store = open_store(FileFolder(tmp_path), SMALL, lambda ms: f"{ms:017d}")
    arrivals = Rig().make_arrivals(store)
    arrivals.put(make_message(0), 1_000_000)
    end = store.log.end
    # Without any, the folder cannot be looked into; the file itself needs two.
    for free in (0, 1):
        with descriptors_left(free):
            with pytest.raises(DiskFull, match="Too many open files"):
                arrivals.put(make_message(1, topic=f"new{free}"), 1_000_000)
            assert store.log.end == end
            arrivals.put(make_message(2), 1_000_000)
            end = store.log.end
    arrivals.put(make_message(3, topic="new1"), 1_000_000)
    assert (bodies(store), bodies(store, "new1")) == ([0, 2, 2], [3])
    store.close()


def test_message_is_stored_where_its_keys_find_no_file() -> None:
    root = MemoryFolder()
    store = open_small(root)
    root.inside["index"].is_out_of_descriptors = True
    Writer(store).put(make_message(0), 1_000_000)
    assert bodies(store) == [0]
    assert store.index.find("topic", "key0", 0, 1 << 60, 9) == []


def test_limit_of_open_files_is_named_to_who_wants_a_queue() -> None:
    store = open_store(MemoryFolder(), SMALL._replace(queue_files_max=2), lambda ms: f"{ms:017d}")
    for queue_id in range(2):
        Writer(store).put(make_message(0, queue_id=queue_id), 1_000_000)
    with pytest.raises(DiskFull, match="2 files of queues are open, and no more may be"):
        Writer(store).put(make_message(1, queue_id=2), 1_000_000)
    Writer(store).put(make_message(1), 1_000_000)
    assert bodies(store) == [0, 1]


def test_copy_of_a_queue_that_finds_no_room_is_taken_later() -> None:
    root, source = MemoryFolder(), open_small(MemoryFolder())
    store = open_small(root)
    for number in range(4):
        Writer(source).put(make_message(number), 1_000_000)
    found = [source.log.read(entry.physical_offset) for entry in source.get("topic", 0, 0, 4)]
    store.log.append(0, source.log.data(0, found[3].offset))
    store.queues.clear()
    folder = root.inside["consumequeue"].folder("topic").folder("0")
    folder.is_out_of_descriptors = True
    for _ in range(2):
        with pytest.raises(DiskFull):
            store.put(store.run_of(found[3], source.log.data(found[3].offset, found[3].size)), 0)
        assert store.span("topic", 0) == (0, 0)
    folder.is_out_of_descriptors = False
    store.put(store.run_of(found[3], source.log.data(found[3].offset, found[3].size)), 0)
    assert store.span("topic", 0) == (3, 4)
    # Also for a process that opens the store again.
    assert open_small(root.after_crash()).span("topic", 0)[1] == 4
