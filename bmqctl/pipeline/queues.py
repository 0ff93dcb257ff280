"""The queues of the partitions that a job reads: few, so the driver reads them and sends them to every executor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bmqctl.pipeline.stores import Partition, map_file
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.queues import Queue, QueueCatalog, read_ledgers
from formats.disk.recover import scan_chunks

__all__ = ["load_queues"]


def load_queues(partitions: Iterable[Partition], ledgers: Iterable[Path]) -> list[Queue]:
    """The queues that the journals, QLIST files and ledgers speak of; see `formats.disk.queues`."""
    in_ledgers = read_ledgers(map_file(path) for path in ledgers)
    queues: list[Queue] = []
    for partition in partitions:
        catalog = QueueCatalog(partition.partition_id, b"" if partition.qlist is None else map_file(partition.qlist))
        for index, records in scan_chunks(map_file(partition.journal), partition.extent):
            catalog.feed(partition.extent.first_record_offset + index * JOURNAL_RECORD_SIZE, records)
        queues += catalog.queues(in_ledgers)
    return queues
