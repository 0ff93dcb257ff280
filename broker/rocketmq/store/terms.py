"""The options of a store, and the results of storing a message and of a flush."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.common.files import Directory, StoreFile
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY

__all__ = ["Arrived", "DueTime", "Flush", "StoreOptions", "Stored"]


class StoreOptions(NamedTuple):
    """Sizes and maximum number of the files, with the original's defaults."""

    commit_log_file_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 300_000 * CONSUME_QUEUE_ENTRY.size
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    queue_files_max: int = 1 << 62


class Stored(NamedTuple):
    """The place of a stored message, and the name of its lite topic's queue."""

    offset: int
    size: int
    queue_offset: int
    lite_queue: str | None = None


class Flush(NamedTuple):
    """Files and folders to flush, and how far the log is on the disk after that, unless it is cut meanwhile.

    The numbers are: the end of the log; the end of its part that is in the queues; the storing times of the last
    message of that part, and of the last one in the full index files; the counts of changes of the log's folder, and of
    cuts.
    """

    files: list[StoreFile | Directory]
    log_end: int
    queues_end: int
    stored_ms: int
    index_ms: int
    log_changes: int
    cuts: int


# Computes a delayed message's due time from its topic, properties and storing time; None for all without the property
# DELAY, and others.
DueTime = Callable[[str, Mapping[str, str], int], int | None]
# Called for stored messages, with their topic, queue, number, and size in bytes.
Arrived = Callable[[str, int, int, int], None]
