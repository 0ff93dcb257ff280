"""Consume queues of written logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record
from tests.bmqctl.stores.rocketmq.journal.losses_rig import entry_of

__all__ = ["numbered", "write_queues"]


def numbered(records: Iterable[Record]) -> list[Record]:
    """The records with the offsets that a broker gives them in their queues."""
    ends: dict[tuple[str, int], int] = {}
    found = []
    for record in records:
        number = ends.setdefault((record.topic, record.queue_id), 0)
        ends[record.topic, record.queue_id] += 1
        found.append(record._replace(queue_offset=number))
    return found


def write_queues(root: Path, records: Iterable[Record]) -> None:
    """Write an entry for each record, as a broker would; its files are twice as long as needed."""
    entries: dict[tuple[str, int], bytearray] = {}
    for record in records:
        data = entries.setdefault((record.topic, record.queue_id), bytearray())
        assert record.queue_offset * CONSUME_QUEUE_ENTRY.size == len(data)
        data += CONSUME_QUEUE_ENTRY.pack(entry_of(record))
    for (topic, queue_id), data in entries.items():
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        (folder / offset_name(0)).write_bytes(data + bytes(len(data)))
