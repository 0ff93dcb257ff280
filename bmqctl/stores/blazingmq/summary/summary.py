"""Figures of a store: by queue and app, by partition, over time. Memory grows with the live messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.files import (
    FileKind,
    NotAStoreFile,
    companions,
    find_files,
    identify,
    read_written,
    recovery_sets,
)
from bmqctl.stores.blazingmq.read.reader import ledgers_beside
from bmqctl.stores.blazingmq.read.scan import JournalScan
from bmqctl.stores.blazingmq.read.source import FileSource
from bmqctl.stores.blazingmq.summary.series import Series
from bmqctl.stores.blazingmq.summary.summary_records import LeaseSummary, MessageSizes, PartitionSummary, RecordCounts
from formats.bmq.disk.columns import key_numbers, sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileSet
from formats.bmq.disk.journal import CONFIRM_RECORD, QUEUE_OP_RECORD, ConfirmReason, QueueOpType, RecordType
from formats.bmq.disk.keys import NULL_KEY, hex_of
from formats.bmq.stores.lives import BITS, End, Lives, Role, Step
from formats.bmq.stores.queues import ALWAYS, App, NamedByLedgers, Queue, QueueCatalog, read_ledgers
from formats.errors import FormatError

__all__ = ["AppSummary", "LeaseSummary", "PartitionSummary", "QueueSummary", "StoreSummary", "summarize"]

Progress = Callable[[int, int], None]

MISFITS = ("unknown", "duplicates", "repeated", "excess", "early")

_ALL = -1


class Tally:
    """Counts of a partition's messages, by queue number (of `lives`), a chunk at a time.

    Memory grows with the queues and apps. The last app to confirm a message has no record: it is one of the apps at the
    message's arrival not known to be done with it. Where apps change, messages are counted by epoch, from one change of
    the queue's apps to the next.
    """

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.misfits: Counter[str] = Counter()
        """Records that do not fit, by their names in `Step`."""
        self._columns: dict[str | tuple[Role | None, int], NDArray[np.int64]] = {}
        self._beyond: Counter[tuple[Role, int, int]] = Counter()
        self._rejected: Counter[tuple[int, int]] = Counter()
        self._epochs: dict[int, list[int]] = {}
        self._beyond_done: Counter[tuple[int, int]] = Counter()
        self._later: dict[int, Counter[tuple[int, int | None]]] = {}

    def count(self, queue: int, name: str | tuple[Role | None, int]) -> int:
        """A count of one queue.

        `name` is `messages`, `carried_over` (by a rollover), `stored_bytes`, `payload_bytes`, or the name of an `End`.
        """
        column = self._columns.get(name)
        return int(column[queue]) if column is not None and queue < len(column) else 0

    def take_records(self, indexes: NDArray[Any], records: NDArray[Any], kinds: NDArray[Any]) -> None:
        """Count rejections and changes of apps, which only records show; call this before `take` for their chunk."""
        confirms = records.take(np.flatnonzero(kinds == RecordType.CONFIRM)).view(CONFIRM_RECORD.dtype)
        rejected = np.flatnonzero(CONFIRM_RECORD.column(confirms, "reason") & np.uint64(ConfirmReason.REJECTED))
        if len(rejected):
            found = confirms.take(rejected)
            keys = (key_numbers(found, CONFIRM_RECORD, name).tolist() for name in ("queue_key", "app_key"))
            self._rejected.update(zip(*keys, strict=True))
        positions = np.flatnonzero(kinds == RecordType.QUEUE_OP)
        for index, words in zip(indexes[positions].tolist(), records.take(positions), strict=True):
            op = QUEUE_OP_RECORD.unpack(words.tobytes())
            is_removal = op.queue_op_type == QueueOpType.DELETION and op.app_key != NULL_KEY
            if is_removal or op.queue_op_type == QueueOpType.ADDITION:
                self._epochs.setdefault(int.from_bytes(op.queue_key, "big"), []).append(index)

    def take(self, step: Step, rolled_over: int, stored: NDArray[Any], payload: NDArray[Any]) -> None:
        """Count a step; a rollover copied messages before index `rolled_over`. Sizes are those of `step.arrived`."""
        arrived = step.arrived["queue"]
        self._count("messages", arrived)
        self._count("carried_over", arrived[step.arrived["index"] < rolled_over])
        self._count("stored_bytes", arrived, stored)
        self._count("payload_bytes", arrived, payload)
        for end in End:
            self._count(end.name, step.ended["queue"][step.end == end])
        self._take_roles(step.ended, step.beyond)
        self._take_last_confirms(step.ended.take(np.flatnonzero(step.end == End.CONFIRMED)), step.beyond)
        for name in MISFITS:
            self.misfits[name] += len(getattr(step, name))

    def take_alive(self, alive: NDArray[Any]) -> None:
        self._take_roles(alive, self.lives.beyond)

    def roles(self, queue: int, app_key: bytes, number: int | None) -> dict[Role, int]:
        """Count a queue's messages with a record by an app, by role; `number` is its index in `lives.app_keys`."""
        if number is None:
            return dict.fromkeys(Role, 0)
        if number >= BITS:
            return {role: self._beyond[role, queue, number] for role in Role}
        return {role: self.count(queue, (role, number)) for role in Role}

    def rejected(self, queue_key: bytes, app_key: bytes) -> int:
        return self._rejected[int.from_bytes(queue_key, "big"), int.from_bytes(app_key, "big")]

    def last_confirms(self, queue: int, queue_key: bytes, number: int | None, present: Callable[[int], bool]) -> int:
        """Count the messages that an app was the last to confirm, for which only the deletion is recorded.

        `present` says whether messages after an index in the journal were for the app, by the queue operations.
        """
        later = self._later.get(queue, Counter())
        count = 0
        total = self.count(queue, End.CONFIRMED.name)
        done = self._done_before_deletion(queue, number)
        starts = self._epochs.get(int.from_bytes(queue_key, "big"), [])
        for epoch, start in enumerate(starts, 1):
            total -= later[epoch, _ALL]
            done -= later[epoch, number]
            if present(start):
                count += later[epoch, _ALL] - later[epoch, number]
        return count + (total - done if not starts or present(starts[0] - 1) else 0)

    def _done_before_deletion(self, queue: int, number: int | None) -> int:
        if number is None:
            return 0
        return self.count(queue, (None, number)) if number < BITS else self._beyond_done[queue, number]

    def _count(
        self, name: str | tuple[Role | None, int], queues: NDArray[Any], sizes: NDArray[Any] | None = None
    ) -> None:
        column = self._columns.get(name, np.zeros(0, np.int64))
        column = np.concatenate([column, np.zeros(self.lives.queue_count - len(column), np.int64)])
        if sizes is None:
            column += np.bincount(queues, minlength=len(column))
        else:
            np.add.at(column, queues, sizes)
        self._columns[name] = column

    def _take_roles(self, rows: NDArray[Any], beyond: Mapping[int, Mapping[int, Role]]) -> None:
        queues = rows["queue"]
        done = rows["confirmed"] | rows["automatic"]
        for role, mask in (
            (Role.CONFIRMED, rows["confirmed"]),
            (Role.AUTOMATIC, rows["automatic"]),
            (Role.PURGED, rows["purged"] & ~done),
        ):
            for bit, having in _bits(mask):
                self._count((role, bit), queues[having])
        for queue, index in _those_of(rows, beyond):
            self._beyond.update((role, queue, number) for number, role in beyond[index].items())

    def _take_last_confirms(self, rows: NDArray[Any], beyond: Mapping[int, Mapping[int, Role]]) -> None:
        """Count the apps that did not confirm messages deleted because all had."""
        done = rows["confirmed"] | rows["automatic"] | rows["purged"]
        for bit, having in _bits(done):
            self._count((None, bit), rows["queue"][having])
        for queue, index in _those_of(rows, beyond):
            self._beyond_done.update((queue, number) for number in beyond[index])
        if not self._epochs:
            return
        keys = self.lives.queue_keys()
        for queue_number in np.unique(rows["queue"]).tolist():
            starts = self._epochs.get(int.from_bytes(keys[queue_number], "big"))
            if starts is None:
                continue
            at = np.flatnonzero((rows["queue"] == queue_number) & (rows["index"] > starts[0]))
            later = self._later.setdefault(queue_number, Counter())
            epochs = np.searchsorted(starts, rows["index"][at])
            for number, those in ((_ALL, epochs), *((bit, epochs[having]) for bit, having in _bits(done[at]))):
                counts = np.bincount(those)
                later.update({(epoch, number): int(counts[epoch]) for epoch in np.flatnonzero(counts).tolist()})
            for row, epoch in zip(at.tolist(), epochs.tolist(), strict=True) if beyond else ():
                later.update((epoch, number) for number in beyond.get(int(rows["index"][row]), ()))


def _bits(mask: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    used = int(np.bitwise_or.reduce(mask)) if len(mask) else 0
    for bit in range(used.bit_length()):
        if used >> bit & 1:
            yield bit, (mask >> np.uint64(bit) & np.uint64(1)).astype(bool)


def _those_of(rows: NDArray[Any], beyond: Mapping[int, object]) -> Iterator[tuple[int, int]]:
    if beyond:
        for queue, index in zip(rows["queue"].tolist(), rows["index"].tolist(), strict=True):
            if index in beyond:
                yield queue, index


@dataclass(slots=True)
class AppSummary:
    """An app of a queue, with the outcomes of its messages; times are in seconds.

    `confirmed` includes rejections, also counted in `rejected`, and unrecorded confirms, the last ones of their
    messages. `outstanding` messages await its confirm.
    """

    app_key: str
    app_id: str | None
    confirmed: int
    rejected: int
    automatic: int
    purged: int
    outstanding: int
    oldest_outstanding: int | None


@dataclass(slots=True)
class QueueSummary:
    """A queue; `ended` counts messages by `End`, in lower case.

    A rollover copied `carried_over` messages from an older journal; rates omit them. `stored_bytes` is the messages'
    size in the DATA file with headers and padding, `payload_bytes` that of stored properties and payload. Both are None
    without the file, `payload_bytes` also if it was not read. `partially_confirmed` counts the outstanding messages
    that some apps have confirmed.
    """

    partition_id: int
    queue_key: str
    queue_uri: str | None
    deleted: bool
    messages: int
    carried_over: int
    stored_bytes: int | None
    payload_bytes: int | None
    outstanding: int
    outstanding_bytes: int | None
    partially_confirmed: int
    oldest_outstanding: int | None
    ended: dict[str, int]
    arrivals_per_s: float
    removals_per_s: float
    apps: list[AppSummary]


@dataclass(slots=True)
class StoreSummary:
    """All partitions, their queues, and the selected messages over time.

    `faults` name journals whose headers cannot be read; these are left out.
    """

    partitions: list[PartitionSummary] = field(default_factory=list)
    queues: list[QueueSummary] = field(default_factory=list)
    series: Series = field(default_factory=Series)
    faults: list[str] = field(default_factory=list)


def summarize(
    path: Path, on_progress: Progress, *, select: str | None = None, read_data: bool | None = None
) -> StoreSummary:
    """Summarise a journal, or a store directory by the file sets from which a broker would recover.

    `select` keeps only queues whose URI contains it or whose key it is. `read_data` None reads DATA files of at most
    `summary_records.DATA_SIZE_READ`. Raises NotAStoreFile if `path` is neither, or no journal has readable headers.
    """
    if path.is_dir():
        ledgers = read_ledgers(read_written(path / name) for name in find_files(path).ledgers)
        directory, sets = path, list(recovery_sets(path).values())
    else:
        kind = identify(path)
        if kind is not FileKind.JOURNAL:
            raise NotAStoreFile(f"{path} is a {kind}: name a JOURNAL file, or the store's directory")
        directory, ledgers = path.parent, ledgers_beside(path)
        sets = [companions(path) or FileSet(0, "", None, path.name, None)]
    file_sizes = [_written_size(directory / str(files.journal)) for files in sets]
    out = StoreSummary()
    for number, files in enumerate(sets):
        before = sum(file_sizes[:number])
        assert files.journal is not None
        data = None if files.data is None else directory / files.data
        qlist = b"" if files.qlist is None else read_written(directory / files.qlist)
        try:
            journal = JournalScan(directory / files.journal)
        except FormatError as error:
            out.faults.append(f"{directory / files.journal}: {error}")
            continue
        with journal as scan, MessageSizes(data, read_data) as sizes:
            partition = _Partition(scan, sizes, QueueCatalog(scan.partition_id, qlist), ledgers, select)
            partition.scan(lambda done, before=before: on_progress(before + done, sum(file_sizes)))  # type: ignore[misc]
            partition.finish(out)
    if not out.partitions:
        raise NotAStoreFile(out.faults[0])
    return out


def _written_size(path: Path) -> int:
    with FileSource(path) as source:
        return source.size


class _Partition:
    """One pass over a journal, and its results."""

    def __init__(
        self,
        scan: JournalScan,
        sizes: MessageSizes,
        catalog: QueueCatalog,
        in_ledgers: NamedByLedgers,
        select: str | None,
    ) -> None:
        self._scan = scan
        self._sizes = sizes
        self._catalog = catalog
        self._in_ledgers = in_ledgers
        self._selection = None if select is None else _Selection(select)
        self._lives = Lives()
        self._tally = Tally(self._lives)
        self._series = Series()
        self._records = RecordCounts(scan.opened.header)

    def scan(self, on_progress: Callable[[int], None]) -> None:
        for chunk in self._scan.chunks(0, self._scan.extent.record_count):
            indexes, kinds = chunk.indexes, sound_kinds(chunk.records)
            self._records.take(chunk, kinds)
            has_queue_ops = bool((kinds == RecordType.QUEUE_OP).any())
            if has_queue_ops:
                self._catalog.feed(chunk.offset, chunk.records)
            self._tally.take_records(indexes, chunk.records, kinds)
            step = self._lives.feed(indexes, chunk.records, kinds)
            places = step.arrived["data_offset_dwords"]
            payload = self._sizes.payload_sizes(places) if self._sizes.is_read else np.zeros(len(places), np.int64)
            self._tally.take(step, self._records.rolled_over, self._sizes.stored_sizes(places), payload)
            if self._selection is None:
                self._series.add(step.arrived["timestamp"], step.ended_at)
            else:
                self._selection.update(self._lives, self._catalog, self._in_ledgers, has_queue_ops)
                arrived, ended = (self._selection.of(rows) for rows in (step.arrived, step.ended))
                self._series.add(step.arrived["timestamp"][arrived], step.ended_at[ended])
            on_progress(chunk.offset)

    def finish(self, out: StoreSummary) -> None:
        alive = self._lives.alive()
        self._tally.take_alive(alive)
        misfits = {name: self._tally.misfits[name] for name in MISFITS}
        partition = self._records.summary(self._scan, misfits)
        out.partitions.append(partition)
        out.series = out.series.merged(self._series)
        outstanding = _Outstanding(alive, self._sizes)
        named = self._catalog.queues(self._in_ledgers)
        for queue in [*named, *self._nameless({queue.queue_key for queue in named})]:
            if self._selection is None or self._selection.matches(queue):
                out.queues.append(self._queue(queue, partition, outstanding))

    def _nameless(self, named: set[str]) -> Iterator[Queue]:
        for key in self._lives.queue_keys():
            if hex_of(key) not in named:
                yield Queue(self._scan.partition_id, hex_of(key), None, (), (), None, None)

    def _apps(self, queue: Queue, number: int | None) -> list[App]:
        named = {app.app_key: app for app in queue.apps}
        seen = [] if number is None else map(hex_of, self._lives.app_keys(number))
        nameless = [App(key, "", ALWAYS, None) for key in seen if key not in named]
        if queue.uri is None and nameless:
            return nameless
        return [*queue.apps, *nameless]

    def _queue(self, queue: Queue, partition: PartitionSummary, outstanding: _Outstanding) -> QueueSummary:
        key = bytes.fromhex(queue.queue_key)
        number = self._lives.queue_number(key)
        counts = dict.fromkeys(("messages", "carried_over", "stored_bytes", "payload_bytes", *End.__members__), 0)
        if number is not None:
            counts = {name: self._tally.count(number, name) for name in counts}
        waiting = outstanding.of_queue(number)
        seconds = partition.seconds
        removals = sum(counts[end] for end in End.__members__)
        return QueueSummary(
            queue.partition_id,
            queue.queue_key,
            queue.uri,
            queue.deleted is not None,
            counts["messages"],
            counts["carried_over"],
            counts["stored_bytes"] if self._sizes.has_file else None,
            counts["payload_bytes"] if self._sizes.is_read else None,
            len(waiting),
            outstanding.payload_bytes(waiting) if self._sizes.is_read else None,
            int(((waiting["confirms"] > 0) | (waiting["purged"] & ~waiting["automatic"] != 0)).sum()),
            int(waiting["timestamp"][0]) if len(waiting) else None,
            {end.lower(): counts[end] for end in End.__members__},
            (counts["messages"] - counts["carried_over"]) / seconds,
            removals / seconds,
            [self._app(key, number, app, waiting) for app in self._apps(queue, number)],
        )

    def _app(self, queue_key: bytes, queue: int | None, app: App, waiting: NDArray[Any]) -> AppSummary:
        key = bytes.fromhex(app.app_key)
        keys = [] if queue is None else self._lives.app_keys(queue)
        number = keys.index(key) if key in keys else None
        first, size = self._scan.first_record_offset, JOURNAL_RECORD_SIZE

        def present(index: int) -> bool:
            offset = first + index * size
            return app.since <= offset and (app.until is None or offset < app.until)

        roles = self._tally.roles(queue or 0, key, number)
        last = 0 if queue is None else self._tally.last_confirms(queue, queue_key, number, present)
        offsets = first + waiting["index"] * size
        there = (offsets > app.since) & (offsets < (app.until if app.until is not None else 1 << 62))
        if number is not None and number < BITS:
            done = waiting["confirmed"] | waiting["automatic"] | waiting["purged"]
            there &= done >> np.uint64(number) & np.uint64(1) == 0
        elif number is not None:
            beyond = self._lives.beyond
            there &= [number not in beyond.get(index, ()) for index in waiting["index"].tolist()]
        oldest = waiting["timestamp"][there][:1].tolist()
        return AppSummary(
            app.app_key,
            app.app_id or None,
            roles[Role.CONFIRMED] + last,
            self._tally.rejected(queue_key, key),
            roles[Role.AUTOMATIC],
            roles[Role.PURGED],
            int(there.sum()),
            oldest[0] if oldest else None,
        )


class _Outstanding:
    """The messages alive at the end, by queue."""

    def __init__(self, alive: NDArray[Any], sizes: MessageSizes) -> None:
        order = np.argsort(alive["queue"], kind="stable")
        self._rows = alive.take(order)
        self._queues = self._rows["queue"].astype(np.int64)
        self._sizes = sizes

    def of_queue(self, number: int | None) -> NDArray[Any]:
        if number is None:
            return self._rows[:0]
        start, end = np.searchsorted(self._queues, [number, number + 1])
        return self._rows[start:end]

    def payload_bytes(self, rows: NDArray[Any]) -> int:
        return int(self._sizes.payload_sizes(rows["data_offset_dwords"]).sum())


class _Selection:
    """The queues whose URI contains a text, or whose key it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._chosen: NDArray[np.bool_] = np.zeros(0, bool)

    def matches(self, queue: Queue) -> bool:
        return self._text in (queue.uri or "") or self._text.upper() == queue.queue_key

    def update(self, lives: Lives, catalog: QueueCatalog, in_ledgers: NamedByLedgers, named: bool) -> None:
        """Update the selection if there may be new names (`named`), or new queues."""
        if named or lives.queue_count > len(self._chosen):
            keys = lives.queue_keys()
            chosen = {queue.queue_key for queue in catalog.queues(in_ledgers) if self.matches(queue)}
            self._chosen = np.array([key.hex().upper() in chosen for key in keys], bool)

    def of(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = self._chosen[rows["queue"]]
        return chosen
