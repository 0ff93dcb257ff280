"""The disk that a store takes is in proportion to its messages, and only the node's account can read it."""

from __future__ import annotations

import stat
from pathlib import Path

from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from tests.broker.rocketmq.store.message_store_rig import make_message

# The files of queues are as long as the original's.
OPTIONS = StoreOptions(
    commit_log_file_bytes=1 << 20, consume_queue_file_bytes=6_000_000, index_slots=100, index_entries=1_000
)
TOPICS = 40


def test_message_to_a_new_topic_takes_a_page_of_its_queue(tmp_path: Path) -> None:
    store = open_store(FileFolder(tmp_path), OPTIONS, lambda ms: f"{ms:017d}")
    for number in range(TOPICS):
        Writer(store).put(make_message(number, topic=f"topic{number}"), 1_000_000)
    queues = sorted((tmp_path / "consumequeue").rglob("0" * 20))
    assert len(queues) == TOPICS
    assert {path.stat().st_size for path in queues} == {6_000_000}
    assert max(path.stat().st_blocks * 512 for path in queues) <= 8 << 10
    entry = queues[0].read_bytes()[:20]
    store.close()
    assert queues[0].read_bytes() == entry + bytes(6_000_000 - 20)
    again = open_store(FileFolder(tmp_path), OPTIONS, lambda ms: f"{ms:017d}")
    assert {queue.end for queue in again.queues.values()} == {1}
    assert max(path.stat().st_blocks * 512 for path in queues) <= 8 << 10
    again.close()


def test_store_is_for_the_account_of_its_node_only(tmp_path: Path) -> None:
    store = open_store(FileFolder(tmp_path / "new" / "store"), OPTIONS, lambda ms: f"{ms:017d}")
    Writer(store).put(make_message(0), 1_000_000)
    store.close()
    made = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert len(made) > 8
    assert {path: mode for path, mode in made.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}
