"""The sound part of a damaged store, and the messages lost elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from bmqctl.stores.rocketmq.check.queues import QueueCheck
from bmqctl.stores.rocketmq.read.derived import Columns, QueueKeys, Rows, joined, read_columns, sound_bodies
from bmqctl.stores.rocketmq.read.files import StoreFiles
from bmqctl.stores.rocketmq.read.queues import record_of
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.repair.fill import SMALLEST, room_for
from bmqctl.stores.rocketmq.repair.parts import Area, Lost, Note, Patch, Refused
from formats.bmq.stores.faults import Fault
from formats.rocketmq.files.record import BLANK_BYTES_MIN

__all__ = ["Plan", "make_plan"]

_BATCH: Final = 1 << 16
# Missing files are filled. A wrong offset in a name must not exhaust the disk.
_FILES_MAX: Final = 1000
Progress = Callable[[int, int], None]

_NUMBER_AT = 20


class Hole(NamedTuple):
    """Missing numbers [`begin`, `end`) of a queue, between two log offsets."""

    key: int
    begin: int
    end: int
    low: int
    high: int


@dataclass
class _Last:
    """The number and the offset of the last message of a queue."""

    number: int
    offset: int


class Sequences:
    """The numbers of all queues, from records in log order; `queues` are the store's.

    A number that contradicts the queue's entry is corrected. Where numbers go back, the queue was recreated.
    """

    def __init__(self, queues: QueueCheck) -> None:
        self._queues = queues
        self._last: dict[int, _Last] = {}
        self.holes: list[Hole] = []
        self.patches: list[Patch] = []
        self.restored: list[Note] = []

    def records(self, rows: Rows) -> None:
        if not len(rows.queues):
            return
        ordered = rows.where(np.argsort(rows.queues, kind="stable"))
        begins = np.append(0, np.flatnonzero(np.diff(ordered.queues)) + 1).tolist()
        for begin, end in zip(begins, [*begins[1:], len(ordered.queues)], strict=True):
            self._queue(int(ordered.queues[begin]), ordered.where(slice(begin, end)))

    def _queue(self, key: int, rows: Rows) -> None:
        last = self._last.get(key)
        first = int(rows.numbers[0]) if last is None else last.number + 1
        if (rows.numbers == np.arange(first, first + len(rows.numbers))).all():
            self._last[key] = _Last(int(rows.numbers[-1]), int(rows.offsets[-1]))
            return
        for number, offset, size in zip(rows.numbers.tolist(), rows.offsets.tolist(), rows.sizes.tolist(), strict=True):
            self._record(key, number, offset, size)

    def _record(self, key: int, number: int, offset: int, size: int) -> None:
        last = self._last.get(key)
        if last is None or number == last.number + 1:
            self._last[key] = _Last(number, offset)
            return
        wanted = last.number + 1
        if self._queues.entry_offset(key, wanted) == offset:
            topic, queue_id = self._queues.name(key)
            self.patches.append(Patch(offset + _NUMBER_AT, wanted.to_bytes(8, "big")))
            self.restored.append(Note(offset, size, "number", f"said to be {number}", topic, queue_id, wanted))
            number = wanted
        elif self._queues.entry_offset(key, number) not in (None, offset):
            # The entry names another record: this one belongs elsewhere.
            return
        elif number > wanted:
            self.holes.append(Hole(key, wanted, number, last.offset, offset))
        self._last[key] = _Last(number, offset)


class _Missing(NamedTuple):
    """A message without a record, between two offsets; its entry names the offset."""

    lost: Lost
    low: int
    high: int
    offset: int | None


@dataclass
class Plan:
    """The places to rewrite, in order, and the log's end."""

    areas: list[Area] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    left_out: list[Note] = field(default_factory=list)
    restored: list[Note] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    records: int = 0


def _ignore(found: Fault) -> None:
    """Drop a fault, which the places without a record show."""


def make_plan(
    store: StoreFiles, file_bytes: int, queues: QueueCheck, keys: QueueKeys, end: int | None, on_progress: Progress
) -> Plan:
    """Read the store: `queues` are its queues, `keys` their numbers; `end` is the log's, if known."""
    return _Planner(store, file_bytes, queues, keys).run(end, on_progress)


class _Planner:
    def __init__(self, store: StoreFiles, file_bytes: int, queues: QueueCheck, keys: QueueKeys) -> None:
        self._store = store
        self._file_bytes = file_bytes
        self._queues = queues
        self._keys = keys
        self._plan = Plan(begin=store.begin)
        self._sequences = Sequences(queues)
        self._held: list[Columns] = []
        self._count = 0
        self._taken: list[int] = []
        self._last_ms = 0

    def run(self, end: int | None, on_progress: Progress) -> Plan:
        plan = self._plan
        scan = LogScan(self._store.log, tail=False)
        for chunk in scan.chunks():
            records, faults = chunk.records, chunk.faults
            if end is not None and chunk.end > end:
                records = records.where(records.offsets < end)
                faults = [found for found in faults if found.offset < end]
            for found in faults:
                self._add(Area(found.offset, found.offset + found.size, found.text, self._last_ms))
            if len(records):
                self._records(records)
            on_progress(chunk.end - self._store.begin, self._store.end - self._store.begin)
        plan.end = scan.end if end is None else end
        self._flush()
        self._end_areas()
        self._place_missing(was_cut=end is not None)
        return plan

    def _add(self, area: Area) -> None:
        areas = self._plan.areas
        if areas and areas[-1].end == area.begin and not areas[-1].is_record and not area.is_record:
            areas[-1].end = area.end
        else:
            areas.append(area)

    def _records(self, records: LogRecords) -> None:
        self._plan.records += len(records)
        self._last_ms = int(records.stored_ms[-1])
        kept = sound_bodies(records)
        for at in np.flatnonzero(~kept).tolist():
            begin, size = int(records.offsets[at]), int(records.sizes[at])
            reason = "the body does not match its checksum"
            kept[at] = _is_text(records.where(slice(at, at + 1)).topics()[0])
            self._plan.areas.append(Area(begin, begin + size, reason, int(records.stored_ms[at]), [], bool(kept[at])))
        # A record whose topic is also damaged is not a record any more.
        records = records.where(kept)
        if not len(records):
            return
        columns = read_columns(records, self._keys)
        self._held.append(columns)
        self._count += len(columns)
        if self._count >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            rows = joined(self._held).rows
            self._queues.records(rows)
            self._sequences.records(rows)
        self._held, self._count = [], 0

    def _end_areas(self) -> None:
        plan = self._plan
        found: list[Area] = []
        for area in sorted(plan.areas, key=lambda area: area.begin):
            at = area.begin
            missing = (min(area.end, plan.end) - at) // self._file_bytes
            if missing > _FILES_MAX:
                raise Refused(
                    f"{self._store.root}: {missing} files of the commit log from offset {at} on are missing or hold no "
                    f"record, too many to fill: move the files before offset {area.end} away, or those from there on"
                )
            while at < min(area.end, plan.end):
                end = min(area.end, at - at % self._file_bytes + self._file_bytes)
                is_record = area.is_record and (at, end) == (area.begin, area.end)
                found.append(Area(at, end, area.reason, area.stored_ms or self._last_ms, [], is_record))
                at = end
        plan.areas = [self._widened(area) for area in found]
        # A last record with a damaged body keeps its message's place in the queue.
        plan.patches += self._sequences.patches
        plan.restored += self._sequences.restored

    def _widened(self, area: Area) -> Area:
        """An area large enough for a record: the record after one that is too small is lost with it."""
        if area.is_record or area.end % self._file_bytes == 0 or area.end - area.begin >= SMALLEST:
            return area
        behind = record_of(self._store.log, area.end, _size_at(self._store, area.end))
        if behind is None:
            size = area.end - area.begin
            raise Refused(
                f"{self._store.root}: {size} bytes of the commit log at offset {area.begin} hold no record and are "
                "too few to put one there: restore the store from a replica or a backup"
            )
        area.lost.append(self._lost_of(behind))
        area.end += int(behind.sizes[0])
        return area

    def _lost_of(self, record: LogRecords) -> Lost:
        topic = record.topics()[0].decode(errors="replace")
        return Lost(topic, int(record.front("queue_id")[0]), int(record.front("queue_offset")[0]))

    # -- lost messages

    def _place_missing(self, *, was_cut: bool) -> None:
        entries = self._unmatched(was_cut=was_cut)
        missing: list[_Missing] = []
        for hole in self._sequences.holes:
            missing += self._of_hole(hole, entries)
        for key, numbers in entries.items():
            topic, queue_id = self._keys.queue(key)
            for number, (offset, _) in sorted(numbers.items()):
                missing.append(_Missing(Lost(topic, queue_id, number), -1, 1 << 62, offset))
        self._allocate(missing)
        for area in self._plan.areas:
            self._note(area)

    def _unmatched(self, *, was_cut: bool) -> dict[int, dict[int, tuple[int, int]]]:
        """The entries without a record, by queue and number; entries of records with a wrong number are mended.

        Omits messages after the end of the log, unless a broker has cut it there.
        """
        found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        mended = {patch.offset for patch in self._plan.patches}
        for key, number, offset, size in self._queues.unmatched():
            if offset >= self._plan.end and not was_cut:
                note = Note(offset, 0, "message", "the log ends before it", *self._keys.queue(key), number)
                self._plan.left_out.append(note)
            if not self._store.begin <= offset < self._plan.end or offset + 20 in mended:
                continue
            if self._area_of(offset) is None and not self._is_other(key, number, offset, size):
                continue
            found[key][number] = offset, size
        return found

    def _is_other(self, key: int, number: int, offset: int, size: int) -> bool:
        """Take the record that an entry names for the missing one, though it contradicts the entry.

        Corrects its number, or its queue's; one of another topic is lost. Returns whether it is lost.
        """
        record = record_of(self._store.log, offset, size)
        if record is None:
            return False
        topic, queue_id = self._keys.queue(key)
        said = self._lost_of(record)
        if said == Lost(topic, queue_id, number):
            return False
        if said.topic != topic:
            reason = f"says to be of {said.topic}, its queue's entry of {topic}"
            self._plan.areas.append(Area(offset, offset + size, reason, int(record.stored_ms[0])))
            self._plan.areas.sort(key=lambda area: area.begin)
            return True
        self._plan.patches.append(Patch(offset + 12, queue_id.to_bytes(4, "big", signed=True)))
        self._plan.patches.append(Patch(offset + 20, number.to_bytes(8, "big")))
        reason = f"said to be number {said.number} of queue {said.queue_id}"
        self._plan.restored.append(Note(offset, size, "number", reason, topic, queue_id, number))
        return False

    def _area_of(self, offset: int) -> int | None:
        areas = self._plan.areas
        at = bisect_right(areas, offset, key=lambda area: area.begin) - 1
        return at if at >= 0 and offset < areas[at].end and not areas[at].is_record else None

    def _of_hole(self, hole: Hole, entries: dict[int, dict[int, tuple[int, int]]]) -> Iterator[_Missing]:
        topic, queue_id = self._keys.queue(hole.key)
        room = sum(area.end - area.begin for area in self._plan.areas if hole.low < area.begin < hole.high)
        if (hole.end - hole.begin) * SMALLEST > room:
            reason = "are missing, without a place in the log at which they were: the queue begins after them"
            what = f"messages up to {hole.end - 1}"
            self._plan.left_out.append(Note(hole.high, 0, what, reason, topic, queue_id, hole.begin))
            return
        known = entries.get(hole.key, {})
        for number in range(hole.begin, hole.end):
            offset, _ = known.pop(number, (None, 0))
            yield _Missing(Lost(topic, queue_id, number), hole.low, hole.high, offset)

    def _allocate(self, missing: list[_Missing]) -> None:
        areas = self._plan.areas
        left = [self._room(area) for area in areas]
        last: dict[tuple[str, int], int] = {}
        for each in sorted(missing, key=lambda each: (each.high, each.lost)):
            queue = each.lost[:2]
            size = room_for(each.lost)
            known = None if each.offset is None else self._area_of(each.offset)
            first = max(last.get(queue, 0), bisect_right(areas, each.low, key=lambda area: area.begin))
            choices = range(first, len(areas)) if known is None or known < first else range(known, len(areas))
            place = next((at for at in choices if areas[at].begin < each.high and left[at] >= size), None)
            if place is None:
                reason = "no room is left where the message was: the queue begins after it"
                note = Note(each.offset or each.high, 0, "message", reason, *each.lost)
                self._plan.left_out.append(note)
                continue
            left[place] -= size
            last[queue] = place
            areas[place].lost.append(each.lost)

    def _room(self, area: Area) -> int:
        if area.is_record:
            return 0
        used = sum(map(room_for, area.lost))
        return area.end - area.begin - used - (BLANK_BYTES_MIN if area.end % self._file_bytes == 0 else 0)

    def _note(self, area: Area) -> None:
        size = area.end - area.begin
        if area.is_record:
            record = record_of(self._store.log, area.begin, size)
            where = () if record is None else self._lost_of(record)
            self._plan.left_out.append(Note(area.begin, size, "body", area.reason, *where))
            return
        self._plan.left_out.append(Note(area.begin, size, "bytes", area.reason))
        for lost in sorted(area.lost):
            self._plan.left_out.append(Note(area.begin, 0, "message", "its record is not sound", *lost))


def _is_text(topic: bytes) -> bool:
    try:
        topic.decode()
    except UnicodeDecodeError:
        return False
    return True


def _size_at(store: StoreFiles, offset: int) -> int:
    for file in store.log:
        if file.begin <= offset and offset + 4 <= file.end:
            with file.path.open("rb") as stream:
                stream.seek(offset - file.begin)
                return int.from_bytes(stream.read(4), "big")
    return 0
