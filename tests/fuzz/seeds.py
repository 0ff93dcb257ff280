"""Inputs to start from: small pieces of the reference's events and files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from formats.bmq.codes import EventType
from formats.bmq.disk.data import write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import MessageRecord, RecordType
from formats.bmq.disk.ledger import open_ledger
from formats.bmq.stores.recover import iter_data, iter_journal, iter_ledger, iter_qlist
from formats.bmq.wire.event import iter_frames
from tests.golden.archives import map_file, only, unpack_store
from tests.golden.captures import CAPTURES, streams

__all__ = ["SIZE_MAX", "StoreFiles", "bodies", "events", "ledger", "queue_lists", "small_store"]

SIZE_MAX = 2048
"""Bytes of a seed: a fuzzer gets further with small ones."""

StoreFiles = dict[FileType, bytes]


@cache
def _events() -> dict[int, dict[tuple[str, int], tuple[bytes, bytes, bool]]]:
    """Return an event of each length per type and capture: whole, without its header, and whether it opens a stream."""
    found: dict[int, dict[tuple[str, int], tuple[bytes, bytes, bool]]] = {}
    for capture in CAPTURES:
        for _, stream in streams(capture):
            at = 0
            for frame in iter_frames(stream, 0, len(stream), 1 << 24):
                size = frame.end - at
                if size <= SIZE_MAX:
                    event = (stream[at : frame.end], stream[frame.body : frame.end], at == 0)
                    found.setdefault(frame.type, {}).setdefault((capture, size), event)
                at = frame.end
    return found


def bodies(event_type: EventType, opening: bool | None = None) -> list[bytes]:
    """Bodies of events; `opening` selects bodies that begin a stream, or all others."""
    every = _events().get(event_type, {}).values()
    return sorted({body for _, body, first in every if opening is None or opening == first}, key=len)


def events() -> list[bytes]:
    """A few whole events of every type."""
    return [event for kind in _events().values() for event, _, _ in sorted(kind.values(), key=lambda e: len(e[0]))[:3]]


@cache
def _store() -> tuple[dict[FileType, bytes], bytes]:
    """The journal, DATA and QLIST files of a store that was closed, and its ledger."""
    with tempfile.TemporaryDirectory() as directory:
        store = unpack_store("single-clean", Path(directory))
        kinds = (FileType.JOURNAL, FileType.DATA, FileType.QLIST)
        files = {kind: bytes(map_file(only(store, kind.extension))) for kind in kinds}
        return files, bytes(map_file(only(store, ".bmq_csl")))


@cache
def small_store(messages_max: int = 4, per_kind_max: int = 3) -> StoreFiles:
    """The files of a store with few records, of some queues and short messages of the golden one."""
    files, _ = _store()
    journal = bytearray(initial_bytes(FileType.JOURNAL, 0))
    data = bytearray(initial_bytes(FileType.DATA, 0))
    sizes = {record.offset: record for record in iter_data(files[FileType.DATA])}
    guids: set[bytes] = set()
    counts: dict[int, int] = {}
    for offset, record in iter_journal(files[FileType.JOURNAL]):
        original = bytearray(files[FileType.JOURNAL][offset : offset + JOURNAL_RECORD_SIZE])
        if isinstance(record, MessageRecord):
            stored = sizes[record.message_offset_dwords * 8]
            if stored.end - stored.offset > 200 or len(guids) == messages_max:
                continue
            guids.add(record.guid)
            original[32:36] = (len(data) // 8).to_bytes(4, "big")
            at = len(data)
            data += bytes(stored.end - stored.offset)
            ids = (stored.header.flags, stored.header.schema_id)
            write_data_record(data, at, stored.app_data(files[FileType.DATA]), b"", *ids)
        elif record.type in (RecordType.CONFIRM, RecordType.DELETION):
            if record.guid not in guids:  # type: ignore[union-attr]
                continue
        elif record.type == RecordType.JOURNAL_OP and counts.get(record.type, 0) == per_kind_max:
            continue
        counts[record.type] = counts.get(record.type, 0) + 1
        journal += original
    return {FileType.JOURNAL: bytes(journal), FileType.DATA: bytes(data), FileType.QLIST: _qlist(2)}


def _qlist(queues: int) -> bytes:
    whole = _store()[0][FileType.QLIST]
    ends = [record.end for record in iter_qlist(whole)]
    return whole[: ends[queues - 1]]


def queue_lists() -> Iterator[bytes]:
    """The golden QLIST file, whole and cut after some records."""
    return (_qlist(count) for count in (1, 2, 5))


def ledger(records_max: int = 4) -> bytes:
    whole = _store()[1]
    end = open_ledger(whole)[1]
    for _, record in zip(range(records_max), iter_ledger(whole), strict=False):
        end = record.end
    return whole[:end]
