"""Dump of the filtered records of journals to a sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.dump.output import Sink, Source
from bmqctl.stores.blazingmq.read.chunks import FAULT, Chunk
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, companions
from bmqctl.stores.blazingmq.read.filters import Filters, Selector, places
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.payload import PayloadReader
from bmqctl.stores.blazingmq.read.reader import JournalReader, load_names, with_names
from bmqctl.stores.blazingmq.read.wanted import BadFilter, PayloadForm, Wanted, parse_key
from formats.bmq.disk.journal import RecordType
from formats.bmq.disk.keys import hex_of
from formats.bmq.stores.lives import BITS, Lives
from formats.bmq.stores.outcomes import ENDED, MessageOutcome
from formats.bmq.stores.queues import NamedByLedgers, Queue

__all__ = ["DumpReport", "Journal", "PayloadPlan", "Printer", "check_names", "dump_journals", "open_journal"]

Progress = Callable[[int, int], None]
OnFault = Callable[[Path, int, str], None]


class StatusFilter:
    """Passes messages of one status in one journal, with their confirms and deletions.

    An outstanding message is alive, whether or not some apps have confirmed it. With `apps`, names or keys, it must be
    outstanding for one of these apps: in the app's queue, posted while the queue had the app, and neither confirmed nor
    purged by it.

    A message's status is known only after its last record. The constructor therefore reads the journal, and keeps one
    bit for each slot. `select` then needs all chunks up to `end`, in order.
    """

    def __init__(
        self,
        reader: JournalReader,
        names: QueueNames,
        status: MessageOutcome,
        apps: Collection[str],
        on_progress: Progress,
    ) -> None:
        self.end = reader.record_end()
        """The first slot that was not read."""
        self._bits = np.zeros(self.end // 8 + 1, np.uint8)
        self._chosen: set[bytes] = set()
        lives = Lives()
        ends = [end for end, outcome in ENDED.items() if outcome is status]
        ops: list[tuple[int, NDArray[Any]]] = []
        for chunk in reader.chunks(0, self.end):
            step = lives.feed(chunk.index, chunk.records, chunk.kinds)
            if ends:
                self._choose(step.ended["index"][np.isin(step.end, ends)])
            if apps:
                rows = np.flatnonzero(chunk.kinds == RecordType.QUEUE_OP).tolist()
                ops += [(int(chunk.offset[row]), chunk.records[row : row + 1].copy()) for row in rows]
            on_progress(chunk.end_offset, reader.size)
        alive = lives.alive()
        if status is MessageOutcome.PARTIALLY_CONFIRMED:
            self._choose(alive["index"][alive["confirms"] > 0])
        elif status is MessageOutcome.OUTSTANDING:
            wanted = _outstanding(reader, lives, alive, names.queues(ops), apps) if apps else slice(None)
            self._choose(alive["index"][wanted])

    def _choose(self, places: NDArray[np.int64]) -> None:
        np.bitwise_or.at(self._bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))

    def select(self, chunk: Chunk) -> Chunk:
        messages = chunk.of_kind(RecordType.MESSAGE)
        places = messages.places["index"]
        begins = np.zeros(len(chunk), np.bool_)
        begins[messages.rows] = self._bits[places >> 3] >> (places & 7) & 1
        guids = np.full(len(chunk), None, object)
        for kind in (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION):
            part = chunk.of_kind(kind)
            guids[part.rows] = part.column("guid").tolist()
        wanted = np.zeros(len(chunk), np.bool_)
        chosen = self._chosen
        for row, (guid, is_message, is_begin, is_end) in enumerate(
            zip(
                guids.tolist(),
                (chunk.kinds == RecordType.MESSAGE).tolist(),
                begins.tolist(),
                (chunk.kinds == RecordType.DELETION).tolist(),
                strict=True,
            )
        ):
            if is_begin:
                chosen.add(guid)
                wanted[row] = True
            elif guid in chosen and not is_message:
                wanted[row] = True
                if is_end:
                    chosen.remove(guid)
        return chunk.where(wanted)


def _outstanding(
    reader: JournalReader, lives: Lives, alive: NDArray[Any], queues: list[Queue], apps: Collection[str]
) -> NDArray[np.bool_]:
    wanted = np.zeros(len(alive), np.bool_)
    done = alive["confirmed"] | alive["automatic"] | alive["purged"]
    numbers = {hex_of(key): number for number, key in enumerate(lives.queue_keys())}
    for queue in queues:
        if queue.queue_key not in numbers:
            continue
        number = numbers[queue.queue_key]
        mine = alive["queue"] == number
        app_keys = [hex_of(key) for key in lives.app_keys(number)]
        for app in queue.apps:
            if app.app_id not in apps and app.app_key not in {name.upper() for name in apps}:
                continue
            # A removed app was purged of its messages, and needs no end.
            open_ = mine & (alive["index"] >= reader.index_of(app.since))
            if app.app_key in app_keys:
                bit = app_keys.index(app.app_key)
                if bit < BITS:
                    open_ &= (done >> np.uint64(bit)) & np.uint64(1) == 0
                else:
                    open_ &= [bit not in lives.beyond.get(index, {}) for index in alive["index"].tolist()]
            wanted |= open_
    return wanted


@dataclass(frozen=True)
class PayloadPlan:
    """The format of payloads, at most `limit` bytes of each; `data_file` None is the one beside the journal."""

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
    """Open a journal. Raises FormatError if its headers are wrong, NotAStoreFile if wanted payloads lack DATA."""
    reader = stack.enter_context(JournalReader(path))
    opened = None if payloads is None else stack.enter_context(payloads.open(path))
    return Journal(reader, Source(load_names(path, reader.partition_id, ledgers), opened))


def check_names(journals: list[Journal], filters: Filters) -> None:
    """Raise BadFilter if no journal has a queue or an app in the filters."""
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
        return self._left is not None and self._left <= 0

    @property
    def unseen(self) -> set[Wanted]:
        """GUIDs, numbers and offsets that were requested and not found; empty unless everything was read."""
        if self.is_done:
            return set()
        return self._unseen if self._selector is None else self._unseen & self._selector.unseen

    def print(self, chunk: Chunk) -> int:
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
    # A confirm is selected by its message, which may precede the range.
    by_status = StatusFilter(journal.reader, journal.names, filters.status, filters.apps, on_progress)
    end = by_status.end if end is None else min(end, by_status.end)
    return (by_status.select(chunk) for chunk in with_names(journal.reader.chunks(0, end), journal.names))
