"""Payloads that are written and cannot rot yet, and waiting messages whose payloads have rotted."""

from __future__ import annotations

from collections.abc import Iterator

from broker.bmq.node.node import Node
from broker.bmq.queue.root_queue import COMPARED_AFTER_MS
from formats.bmq.disk.data import parse_data_record

__all__ = ["Written", "just_written", "rotted_at"]

# A file's name, where a record begins in it, and where it ends.
Written = tuple[str, int, int]


def just_written(node: Node) -> list[Written]:
    """The records of messages that have waited for copies, and not for so long that they will be compared.

    The disk rots, and a read of what was written a moment ago is served from memory. A primary relies on that until
    then: it hands out a message that has its copies by then without a check. It hands out no message that was removed,
    and new files have it no longer.
    """
    written = []
    for partition in node.partitions.values():
        for message in (each.message for each in partition.kept.awaiting):
            is_here = any(store.get(message.guid) is message for store in partition.records.stores.values())
            if is_here and node.now.ms - message.arrived_ms <= COMPARED_AFTER_MS:
                files, offset = partition.records.place_of(message)
                written.append((files.data.name, offset, parse_data_record(files.data.buffer, offset).end))
    return written


def rotted_at(node: Node, name: str, at: int) -> Iterator[bytes]:
    """Yield the GUID of the message that a byte of a file is of, if it waits for copies."""
    for partition in node.partitions.values():
        for message in (each.message for each in partition.kept.awaiting):
            if any(store.get(message.guid) is message for store in partition.records.stores.values()):
                files, offset = partition.records.place_of(message)
                if files.data.name == name and offset <= at < parse_data_record(files.data.buffer, offset).end:
                    yield message.guid
