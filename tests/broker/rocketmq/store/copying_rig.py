"""Stores that are copied to another."""

from __future__ import annotations

from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import SMALL, make_message


def open_at(root: MemoryFolder, options: StoreOptions = SMALL) -> MessageStore:
    return open_store(root, options, lambda ms: f"{ms:017d}")


def filled(count: int = 30) -> tuple[MemoryFolder, MessageStore]:
    root = MemoryFolder(chunk=64)
    store = open_at(root)
    for number in range(count):
        Writer(store).put(make_message(number, queue_id=number % 2), 1000 + number)
    return root, store


def log_bytes(store: MessageStore, begin: int = 0) -> bytes:
    files = store.log.files
    found = b"".join(bytes(file.buffer) for file in files.files)
    return found[begin - files.begin : store.log.end - files.begin]


def kept(root: MemoryFolder) -> dict[str, bytes]:
    return {path: data for path, data in root.contents().items() if path.startswith(("commitlog", "consumequeue"))}
