"""A store of two partitions, for tests of what its files have lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.bmqctl.pipeline.written import WrittenStore

QUEUE: Final = b"queue"
MESSAGES: Final = 8


def store_of_two_partitions(directory: Path) -> list[WrittenStore]:
    stores = []
    for partition_id in range(2):
        store = WrittenStore(partition_id)
        store.queue(QUEUE, f"bmq://domain/queue{partition_id}", ("__default", b"0\0\0\0\0"))
        for number in range(MESSAGES):
            store.message(QUEUE, bytes([partition_id, number]) * 8)
        store.sync_point()
        store.save(directory)
        stores.append(store)
    return stores
