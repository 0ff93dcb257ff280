"""Dump of journals: their records, filtered, to a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bmqctl.stores.blazingmq.dump.output import Sink, Source
from bmqctl.stores.blazingmq.read.chunks import FAULT, Chunk
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, companions
from bmqctl.stores.blazingmq.read.filters import BadFilter, Filters, Selector, Wanted, parse_key, places
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.payload import PayloadForm, PayloadReader
from bmqctl.stores.blazingmq.read.reader import JournalReader, load_names, with_names
from bmqctl.stores.blazingmq.read.status import StatusFilter
from formats.bmq.stores.queues import NamedByLedgers

__all__ = ["DumpReport", "Journal", "PayloadPlan", "Printer", "check_names", "dump_journals", "open_journal"]

Progress = Callable[[int, int], None]
OnFault = Callable[[Path, int, str], None]


@dataclass(frozen=True)
class PayloadPlan:
    """The format of payloads, at most `limit` bytes of each; `data_file` None stands for the one beside the journal."""

    form: PayloadForm
    limit: int
    data_file: Path | None = None

    def open(self, journal: Path) -> PayloadReader:
        """Open the DATA file. Raises NotAStoreFile if the journal has none."""
        data_file = self.data_file
        if data_file is None:
            files = companions(journal)
            if files is None or files.data is None:
                raise NotAStoreFile(f"{journal} has no DATA file beside it: name one with --data-file")
            data_file = journal.with_name(files.data)
        return PayloadReader(data_file, self.form, self.limit)


@dataclass(frozen=True)
class Journal:
    """A journal with its names and payloads."""

    reader: JournalReader
    source: Source

    @property
    def names(self) -> QueueNames:
        return self.source.names


def open_journal(path: Path, ledgers: NamedByLedgers | None, payloads: PayloadPlan | None, stack: ExitStack) -> Journal:
    """Open a journal. FormatError if its headers are wrong, NotAStoreFile if payloads are wanted without DATA."""
    reader = stack.enter_context(JournalReader(path))
    opened = None if payloads is None else stack.enter_context(payloads.open(path))
    return Journal(reader, Source(load_names(path, reader.partition_id, ledgers), opened))


def check_names(journals: list[Journal], filters: Filters) -> None:
    """Raise BadFilter if none of the journals has a queue or an app named in the filters."""
    for option, wanted, known in (("--queue", filters.queues, _queues), ("--app", filters.apps, _apps)):
        names = [name for name in wanted if parse_key(name) is None]
        there = {each for journal in journals for each in known(journal.names)} if names else set()
        missing = [name for name in names if name not in there]
        if missing:
            listed = ", ".join(sorted(there)[:5]) + (", ..." if len(there) > 5 else "")
            raise BadFilter(f"{option} {missing[0]}: no record has this name; known names: {listed or 'none'}")


def _queues(names: QueueNames) -> set[str]:
    return set(names.uris.values())


def _apps(names: QueueNames) -> set[str]:
    return set(names.app_ids.values())


@dataclass
class DumpReport:
    """The result of a dump: damage, and requested records that were not found."""

    damaged: bool = False
    payload_faults: int = 0
    unseen: set[Wanted] = field(default_factory=set)


class Printer:
    """Passes wanted records to a sink, at most `limit` rows."""

    def __init__(self, sink: Sink, filters: Filters, limit: int | None, on_fault: OnFault | None = None) -> None:
        self._sink = sink
        self._filters = filters
        self._left = limit
        self._on_fault = on_fault
        self._selector: Selector | None = None
        self._unseen: set[Wanted] = {*filters.guids, *filters.seqnums, *filters.offsets}

    def begin(self, journal: Journal) -> None:
        self._unseen = self.unseen
        self._journal = journal
        self._selector = Selector(self._filters, journal.names)
        self._sink.begin(journal.source)

    @property
    def is_done(self) -> bool:
        """True if the limit is reached."""
        return self._left is not None and self._left <= 0

    @property
    def unseen(self) -> set[Wanted]:
        """The GUIDs, numbers and offsets that were requested and not found, if everything was read."""
        if self.is_done:
            return set()
        return self._unseen if self._selector is None else self._unseen & self._selector.unseen

    def print(self, chunk: Chunk) -> int:
        """Print the wanted rows of the chunk; return their number."""
        assert self._selector is not None
        chunk = self._selector.select(chunk)
        if self._left is not None:
            chunk = chunk.between(0, self._left)
            self._left -= len(chunk)
        if len(chunk):
            self._sink.write(chunk)
        if self._on_fault is not None and chunk.faults:
            offsets = chunk.of_kind(FAULT).column("offset").tolist()
            for offset, text in zip(offsets, chunk.faults, strict=True):
                self._on_fault(self._journal.reader.path, offset, text)
        return len(chunk)


def dump_journals(
    journals: list[Journal], filters: Filters, printer: Printer, on_progress: Progress = lambda done, total: None
) -> DumpReport:
    """Print the records of all journals in turn."""
    report = DumpReport()
    sizes = [journal.reader.size for journal in journals]
    for number, journal in enumerate(journals):
        printer.begin(journal)
        for chunk in _chunks(journal, filters, on_progress):
            if printer.is_done:
                break
            if len(chunk):
                on_progress(sum(sizes[:number]) + chunk.end_offset, sum(sizes))
                printer.print(chunk)
        report.damaged |= journal.reader.damaged
        if journal.source.payloads is not None:
            report.payload_faults += journal.source.payloads.faults
    report.unseen = printer.unseen
    return report


def _chunks(journal: Journal, filters: Filters, on_progress: Progress) -> Iterator[Chunk]:
    start, end = places(journal.reader, filters)
    if filters.status is None:
        return with_names(journal.reader.chunks(start, end), journal.names)
    # A confirm is selected by its message, which may be before the range.
    by_status = StatusFilter(journal.reader, journal.names, filters.status, filters.apps, on_progress)
    end = by_status.end if end is None else min(end, by_status.end)
    return (by_status.select(chunk) for chunk in with_names(journal.reader.chunks(0, end), journal.names))
