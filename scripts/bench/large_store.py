"""Generator of stores of any size, for measuring the tools: `python scripts/bench/large_store.py DIRECTORY MESSAGES`.

Half the messages go to a queue with one consumer, half to a fanout of three apps; all but one in a hundred are
confirmed and deleted a while after their arrival, each kind as a broker writes it. The store is sound.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.build import build_store
from formats.bmq.disk.data import DATA_HEADER, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    DELETION_RECORD,
    MESSAGE_RECORD,
    RECORD_MAGIC,
    RecordType,
)
from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.guid import GUID
from formats.bmq.padding import DWORD
from formats.bmq.stores.recover import iter_qlist
from formats.schema import Layout

__all__ = ["LargeStore", "write_store"]

START_S = 1_767_225_600
MESSAGES_PER_S = 5_000
LAG_MESSAGES = 2_000
KEPT_EACH = 100
BATCH_MESSAGES = 1 << 17
QUEUES = (("bmq://bench.priority/orders", ["__default"]), ("bmq://bench.fanout/prices", ["foo", "bar", "baz"]))


class LargeStore(NamedTuple):
    """The files of a store, and their numbers of records and outstanding messages."""

    directory: Path
    journal: Path
    records: int
    outstanding: int


def write_store(directory: Path, messages: int, payload_size: int = 100, kept_each: int = KEPT_EACH) -> LargeStore:
    """Write a store with one partition into the empty `directory`; one in `kept_each` messages is kept."""
    creations = [{"type": "QUEUE_OP", "queue_uri": uri, "apps": apps} for uri, apps in QUEUES]
    build_store(map(json.dumps, creations), directory, START_S)
    (journal,), (data,), (qlist,) = (list(directory.glob(f"*.bmq_{kind}")) for kind in ("journal", "data", "qlist"))
    keys = [(queue.queue_key, [app.app_key for app in queue.apps]) for queue in iter_qlist(qlist.read_bytes())]
    payload = bytes(n % 251 for n in range(payload_size))
    stored = bytearray(payload_size + 2 * DATA_HEADER.size)
    stored = stored[: write_data_record(stored, 0, payload)]
    writer = _Writer(messages, keys, data.stat().st_size // DWORD, len(stored) // DWORD, crc32c(payload), kept_each)
    writer.records = (journal.stat().st_size - len(initial_bytes(FileType.JOURNAL, 0))) // JOURNAL_RECORD_SIZE
    with journal.open("ab") as journal_file, data.open("ab") as data_file:
        for start in range(0, messages + LAG_MESSAGES, BATCH_MESSAGES):
            end = min(start + BATCH_MESSAGES, messages + LAG_MESSAGES)
            journal_file.write(writer.batch(start, end).tobytes())
            data_file.write(bytes(stored) * max(0, min(end, messages) - start))
    return LargeStore(directory, journal, writer.records, -(-messages // kept_each))


class _Writer:
    """Makes the records of turns, each of which posts a message, and confirms and deletes an older one."""

    def __init__(
        self,
        messages: int,
        queues: list[tuple[bytes, list[bytes]]],
        first_dwords: int,
        size_dwords: int,
        crc: int,
        kept_each: int,
    ) -> None:
        self.records = 0
        self._messages = messages
        self._queue_keys = np.array([key for key, _ in queues], f"V{KEY_SIZE}")
        self._app_keys = queues[1][1]
        self._first_dwords, self._size_dwords, self._crc = first_dwords, size_dwords, crc
        self._kept_each = kept_each

    def batch(self, start: int, end: int) -> NDArray[np.void]:
        """Make the records of the turns from `start` up to, but not including, `end`."""
        turn = np.arange(start, end)
        old = turn - LAG_MESSAGES
        leaves = (old >= 0) & (old < self._messages) & (old % self._kept_each != 0)
        fanout = leaves & (old % 2 == 1)
        # The slots of a turn: a message, two apps' confirms, a deletion for the last app's.
        taken = np.stack([turn < self._messages, fanout, fanout, leaves], axis=1)
        number = np.cumsum(taken).reshape(taken.shape) - 1
        count = int(taken.sum())
        out = np.zeros(count, ANY_RECORD.dtype)
        layouts: list[Layout[Any]] = [MESSAGE_RECORD, CONFIRM_RECORD, CONFIRM_RECORD, DELETION_RECORD]
        for slot, layout in enumerate(layouts):
            turns = turn[taken[:, slot]]
            message = turns if slot == 0 else turns - LAG_MESSAGES
            made = self._records(layout, slot, message, self.records + 1 + number[taken[:, slot], slot])
            made["timestamp"] = START_S + turns // MESSAGES_PER_S
            made_bytes = made.view(np.uint8).reshape(len(made), JOURNAL_RECORD_SIZE)
            out_bytes = out.view(np.uint8).reshape(count, JOURNAL_RECORD_SIZE)
            out_bytes[number[taken[:, slot], slot]] = made_bytes
        self.records += count
        return out

    def _records(
        self, layout: Layout[Any], slot: int, message: NDArray[np.int64], sequence: NDArray[np.int64]
    ) -> NDArray[np.void]:
        kind = (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.CONFIRM, RecordType.DELETION)[slot]
        made = np.zeros(len(message), layout.dtype)
        flags = np.where(message % 2 == 1, len(self._app_keys), 1) if kind is RecordType.MESSAGE else 0
        made[layout.dtype.names[0]] = kind << 60 | flags << 48 | sequence  # type: ignore[index]
        made["primary_lease_id"] = 1
        made["queue_key"] = self._queue_keys[message % 2]
        made["guid"] = self._guids(message)
        made["magic"] = RECORD_MAGIC
        if kind is RecordType.MESSAGE:
            made["message_offset_dwords"] = self._first_dwords + message * self._size_dwords
            made["crc32c"] = self._crc
        elif kind is RecordType.CONFIRM:
            made["app_key"] = np.void(self._app_keys[slot - 1])
        return made

    def _guids(self, message: NDArray[np.int64]) -> NDArray[np.void]:
        """Make GUIDs as a client does: a counter, a time, the client's id."""
        guids = np.zeros(len(message), GUID.dtype)
        tick_ns = message * (1_000_000_000 // MESSAGES_PER_S)
        guids["version_counter_timer_tick_upper"] = 1 << 62 | (message & 0x3F_FFFF) << 40 | tick_ns >> 16
        guids["timer_tick_lower"] = tick_ns & 0xFFFF
        guids["client_id"] = np.void(b"bench1")
        return guids.view("V16")


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.mkdir()
    print(write_store(into, int(sys.argv[2])))
