"""Small stores that the broker has written, for tests that damage them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random

from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from formats.rocketmq.flags import Transaction
from formats.rocketmq.lite import DISPATCH, DISPATCH_OFFSET, LITE_TOPIC, queue_name
from formats.rocketmq.properties import encode_properties
from tests.broker.rocketmq.store.message_store_rig import make_message

__all__ = ["SMALL", "change", "fill", "open_small", "write_store"]

SMALL = StoreOptions(commit_log_file_bytes=4096, consume_queue_file_bytes=200, index_slots=7, index_entries=20)
BEGIN_MS = 1_795_400_000_000
LEVELS = (1000, 5000)


def open_small(root: Path) -> MessageStore:
    return open_store(FileFolder(root), SMALL, _name_of, make_due_time(LEVELS))


def _name_of(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000).strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03d}"


def fill(store: MessageStore, count: int, choose: Random, begin: int = 0) -> None:
    """Put messages of several kinds, a few hundred milliseconds apart."""
    lite = queue_name("parent", "lite")
    for number in range(begin, begin + count):
        now_ms = BEGIN_MS + 300 * number
        message = make_message(number, topic=choose.choice("ab"), queue_id=choose.randrange(2))
        kind = number % 12
        if kind == 5:
            properties = encode_properties({"DELAY": "2", "REAL_TOPIC": "a", "REAL_QID": "0"})
            message = message._replace(topic="SCHEDULE_TOPIC_XXXX", queue_id=1, properties=properties)
        elif kind == 7:
            message = message._replace(system_flags=int(Transaction.ROLLBACK))
        elif kind == 9:
            offset = store.queues[lite, 0].end if (lite, 0) in store.queues else 0
            properties = encode_properties({LITE_TOPIC: "lite", DISPATCH: lite, DISPATCH_OFFSET: str(offset)})
            message = message._replace(topic="parent", queue_id=0, properties=properties)
        Writer(store).put(message, now_ms)


def write_store(root: Path, count: int = 60, seed: int = 1, *, crashed: bool = False) -> Path:
    """Write a store of some files, which its broker has stopped, or not."""
    store = open_small(root)
    fill(store, count, Random(seed))
    store.close()
    config = root / "config"
    config.mkdir()
    topics = ",".join(f'"{name}":{{"topicName":"{name}"}}' for name in ("a", "b", "parent", "SCHEDULE_TOPIC_XXXX"))
    (config / "topics.json").write_text(f'{{"topicConfigTable":{{{topics}}}}}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"a@group":{0:1,1:2}}}')
    if crashed:
        (root / "abort").write_bytes(b"")
    return root


def change(path: Path, at: int, edit: Callable[[int], int] = lambda byte: byte ^ 1) -> None:
    """Change a byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] = edit(data[at])
    path.write_bytes(data)
