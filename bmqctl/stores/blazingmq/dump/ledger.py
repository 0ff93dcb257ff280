"""Dump of a cluster-state ledger: its filtered records, as rows and in the form of the reference's tool."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bmqctl.common import render
from bmqctl.stores.blazingmq.dump.reference import reference_time
from bmqctl.stores.blazingmq.read.columns import Column, Kind, Row
from bmqctl.stores.blazingmq.read.files import find_files, read_written
from bmqctl.stores.blazingmq.read.filters import Ranges
from bmqctl.stores.blazingmq.read.times import iso_time
from bmqctl.stores.blazingmq.read.wanted import Wanted, parse_key
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages_cluster import (
    ClusterMessage,
    LeaderAdvisory,
    QueueAssignmentAdvisory,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.keys import hex_of
from formats.bmq.disk.ledger import LedgerRecord, LedgerRecordType, open_ledger
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import WORD
from formats.bmq.stores.recover import iter_ledger
from formats.errors import FormatError

__all__ = [
    "LEDGER_COLUMNS",
    "LEDGER_TABLE",
    "Ledger",
    "LedgerFilters",
    "newest_ledger",
    "reference_counts",
    "reference_of",
    "row_of",
]

LEDGER_COLUMNS = (
    Column("index", Kind.NUMBER),
    Column("offset", Kind.NUMBER),
    Column("type"),
    Column("elector_term", Kind.NUMBER),
    Column("sequence_number", Kind.NUMBER),
    Column("timestamp", Kind.NUMBER),
    Column("time", Kind.TIME),
    Column("message", Kind.JSON),
)
LEDGER_TABLE = [
    render.Column("index", "index", 8, right=True),
    render.Column("offset", "offset", 12, right=True),
    render.Column("type", "type", 10),
    render.Column("elector_term", "term", 6, right=True),
    render.Column("sequence_number", "sequence", 10, right=True),
    render.Column("time", "time", 20),
    render.Column("message", "message"),
]


@dataclass(frozen=True)
class LedgerFilters(Ranges):
    """Filters of a ledger, whose records are numbered <elector term>-<sequence number>.

    `queues` are names or keys. Records before the last snapshot require `from_begin`.
    """

    types: frozenset[LedgerRecordType] = frozenset()
    queues: tuple[str, ...] = ()
    from_begin: bool = False

    @property
    def _has_others(self) -> bool:
        return bool(self.types or self.queues)


class Entry(NamedTuple):
    """A record, its index in the ledger (from 0), and its message."""

    place: int
    record: LedgerRecord
    message: ClusterMessage

    @property
    def number(self) -> RecordNumber:
        return RecordNumber(self.record.header.elector_term, self.record.header.sequence_number)


class Ledger:
    """The ledger at `path`, read into memory without trailing zeros.

    Raises FormatError if its header is wrong. After `entries`, `earlier` is the number of records skipped before the
    last snapshot, and `unseen` are the requested numbers and offsets that were not found.
    """

    def __init__(self, path: Path, filters: LedgerFilters) -> None:
        self._buffer = read_written(path)
        self._filters = filters
        header, _ = open_ledger(self._buffer)
        self.log_id = header.file_key
        self.size = len(self._buffer)
        self.earlier = 0
        self.unseen: set[Wanted] = {*filters.seqnums, *filters.offsets}

    def entries(self) -> Iterator[Entry]:
        """Yield the wanted records. Raises FormatError at a damaged one."""
        filters = self._filters
        start = 0 if filters.from_begin else self._last_snapshot()
        for index, record in enumerate(iter_ledger(self._buffer)):
            header = record.header
            if record.offset < start:
                self.earlier += 1
                continue
            number = RecordNumber(header.elector_term, header.sequence_number)
            if not filters.holds(number, record.offset, header.timestamp):
                continue
            self.unseen -= {number, record.offset}
            if filters.types and header.record_type not in filters.types:
                continue
            entry = Entry(index, record, _message(record))
            if not filters.queues or _speaks_of(entry.message, filters.queues):
                yield entry

    def _last_snapshot(self) -> int:
        found = 0
        try:
            for record in iter_ledger(self._buffer):
                if record.header.record_type == LedgerRecordType.SNAPSHOT:
                    found = record.offset
        except FormatError:
            pass
        return found


def newest_ledger(directory: Path) -> Path | None:
    """Return the ledger that a node would continue, by name. Raises NotAStoreFile if there is no store."""
    ledgers = find_files(directory).ledgers
    return directory / ledgers[-1] if ledgers else None


def _message(record: LedgerRecord) -> ClusterMessage:
    try:
        return ber.decode(ClusterMessage, record.body)
    except FormatError as error:
        raise error.shifted(record.offset + record.header.header_words * WORD) from None


def _speaks_of(message: ClusterMessage, queues: tuple[str, ...]) -> bool:
    advisory: Any = message.choice
    infos: tuple[Any, ...] = ()
    if isinstance(advisory, (LeaderAdvisory, QueueAssignmentAdvisory, QueueUnAssignmentAdvisory)):
        infos = advisory.queues
    elif isinstance(advisory, QueueUpdateAdvisory):
        infos = advisory.queue_updates
    keys = {key for key in map(parse_key, queues) if key is not None}
    return any(info.uri in queues or info.key in keys for info in infos)


def row_of(entry: Entry) -> Row:
    header = entry.record.header
    return {
        "index": entry.place,
        "offset": entry.record.offset,
        "type": LedgerRecordType(header.record_type).name,
        "elector_term": header.elector_term,
        "sequence_number": header.sequence_number,
        "timestamp": header.timestamp,
        "time": iso_time(header.timestamp),
        "message": jsonc.to_json(entry.message),
    }


def reference_of(ledger: Ledger, entry: Entry) -> dict[str, Any]:
    """Convert a record as `bmqstoragetool --details --print-mode json-pretty` prints it."""
    header = entry.record.header
    return {
        "RecordType": LedgerRecordType(header.record_type).name,
        "Offset": str(entry.record.offset),
        "LogId": hex_of(ledger.log_id),
        "ElectorTerm": str(header.elector_term),
        "SequenceNumber": str(header.sequence_number),
        "HeaderWords": str(header.header_words),
        "LeaderAdvisoryWords": str(header.leader_advisory_words),
        "Timestamp": reference_time(header.timestamp),
        "Epoch": str(header.timestamp),
        "Record": _with_hex_keys(jsonc.to_json(entry.message)),
    }


def reference_counts(counts: Mapping[str, int]) -> dict[str, str]:
    return {f"{name.capitalize()}Records": str(counts.get(name, 0)) for name in ("SNAPSHOT", "UPDATE", "COMMIT", "ACK")}


def _with_hex_keys(value: Any) -> Any:
    """Convert keys to hex, as the tool prints them.

    Keys whose base64 has a slash stay in base64, as in the tool: its JSON escapes the slash, which hides the key from
    the conversion.
    """
    if isinstance(value, dict):
        return {
            name: hex_of(base64.b64decode(item))
            if name in ("key", "appKey") and "/" not in item
            else _with_hex_keys(item)
            for name, item in value.items()
        }
    return [_with_hex_keys(item) for item in value] if isinstance(value, list) else value
