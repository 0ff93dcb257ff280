"""The consume queues against the log: each record has its entry, and each entry its record.

The queues are surveyed first, so that a broker that writes meanwhile has entered no more than the log has. Records then
come in log order, many at once, and are compared with their queues' entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bmqctl.stores.rocketmq.check.entries import QueueEntries, Survey
from bmqctl.stores.rocketmq.faults import fault
from bmqctl.stores.rocketmq.read.derived import Bits, QueueKeys, Rows
from bmqctl.stores.rocketmq.read.files import StoreFiles
from bmqctl.stores.rocketmq.read.records import Numbers
from formats.bmq.stores.faults import Fault
from formats.rocketmq.lite import is_lite_queue

__all__ = ["QueueCheck", "may_lack_entries", "place_in_log"]

Note = Callable[[Fault], None]

_BRANCH_PREFIX: Final = "%LMQ%"


@dataclass
class _Queue:
    """A queue during the check.

    `next_number` is that of its next record, `before` the number after the last record before its first entry.
    `matched` are the numbers of entries whose records were found, as begins and ends.
    """

    name: str
    entries: QueueEntries | None
    survey: Survey
    next_number: int | None = None
    before: int | None = None
    unentered: int = 0
    unentered_offset: int = 0
    matched: list[list[int]] = field(default_factory=list)

    def match(self, numbers: Numbers) -> None:
        steps = np.flatnonzero(np.diff(numbers) != 1)
        begins = numbers[np.append(0, steps + 1)]
        ends = numbers[np.append(steps, len(numbers) - 1)] + 1
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if self.matched and self.matched[-1][1] == begin:
                self.matched[-1][1] = end
            else:
                self.matched.append([begin, end])


class QueueCheck:
    """The check of all queues of a store. Faults go to `note`.

    `may_lag` means that a broker runs or has crashed, `is_cut` that it has left entries after the ends of queues.
    """

    def __init__(
        self, store: StoreFiles, queue_keys: QueueKeys, note: Note, may_lag: bool, is_cut: bool = False
    ) -> None:
        self._store = store
        self._keys = queue_keys
        self._note = note
        self._may_lag = may_lag
        self._is_cut = is_cut
        self._queues: dict[int, _Queue] = {}
        for files in store.queues():
            entries = QueueEntries(files)
            survey = entries.survey(store.begin)
            for found in survey.faults:
                if not is_cut or found.code != "entry-order":
                    note(found)
            survey.faults.clear()
            name = f"{files.topic}/{files.queue_id}"
            self._queues[queue_keys.key(files.topic, files.queue_id)] = _Queue(name, entries, survey)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The number after the last entry of each queue with a folder."""
        found = ((self._keys.queue(key), queue) for key, queue in self._queues.items() if queue.entries is not None)
        return {name: queue.survey.end for name, queue in found}

    def records(self, rows: Rows) -> None:
        """Compare records, which come in log order, with their queues' entries."""
        if not len(rows.queues):
            return
        ordered = rows.where(np.argsort(rows.queues, kind="stable"))
        keys = ordered.queues
        begins = np.append(0, np.flatnonzero(np.diff(keys)) + 1)
        is_delay = self._keys.is_delay(keys[begins]).tolist()
        for at, (begin, end) in enumerate(zip(begins.tolist(), [*begins[1:].tolist(), len(keys)], strict=True)):
            self._compare(self._queue(int(keys[begin])), ordered.where(slice(begin, end)), is_delay[at])

    def _queue(self, key: int) -> _Queue:
        queue = self._queues.get(key)
        if queue is None:
            topic, queue_id = self._keys.queue(key)
            queue = self._queues[key] = _Queue(f"{topic}/{queue_id}", None, Survey())
        return queue

    def _compare(self, queue: _Queue, rows: Rows, is_delay: bool) -> None:
        survey, entries = queue.survey, queue.entries
        if entries is None or survey.begin is None:
            self._leave(queue, rows)
            return
        if rows.offsets[0] < survey.first_offset:
            # Their entries were dropped with a topic, or are missing: the first later entry shows which.
            count = int(np.searchsorted(rows.offsets, survey.first_offset))
            queue.before = int(rows.numbers[count - 1]) + 1
            rows = rows.where(slice(count, None))
            if not len(rows.numbers):
                return
        numbers = rows.numbers
        if queue.next_number is None:
            self._begin(queue, entries, int(numbers[0]))
        self._check_numbers(queue, rows)
        queue.next_number = int(numbers[-1]) + 1
        there = (numbers >= survey.begin) & (numbers < survey.end)
        if not there.all():
            self._missing(queue, entries, rows.where(~there))
            rows = rows.where(there)
        if len(rows.numbers):
            self._compare_entries(queue, entries, rows, is_delay)

    def _leave(self, queue: _Queue, rows: Rows) -> None:
        if not queue.unentered:
            queue.unentered_offset = int(rows.offsets[0])
        queue.unentered += len(rows.numbers)

    def _begin(self, queue: _Queue, entries: QueueEntries, number: int) -> None:
        queue.next_number = number
        if queue.before == number and number > 0:
            reason = f"entries up to {number - 1} of {queue.name} are missing, whose records are in the log"
            self._note(entries.fault("entry-missing", number - 1, reason))

    def _check_numbers(self, queue: _Queue, rows: Rows) -> None:
        numbers, offsets = rows.numbers, rows.offsets
        first = int(numbers[0]) if queue.next_number is None else queue.next_number
        expected = np.append(first, numbers[:-1] + 1)
        for at in np.flatnonzero(numbers != expected).tolist():
            number, wanted, offset = int(numbers[at]), int(expected[at]), int(offsets[at])
            if number > wanted:
                reason = f"messages {wanted} to {number - 1} of {queue.name} are not in the log before this record"
                self._note(self._log_fault("number-gap", offset, reason))
            else:
                reason = f"message {number} of {queue.name} comes after {wanted - 1}"
                self._note(self._log_fault("number-repeated", offset, reason))

    def _missing(self, queue: _Queue, entries: QueueEntries, rows: Rows) -> None:
        if self._may_lag and rows.numbers[0] >= queue.survey.end:
            self._leave(queue, rows)
            return
        for begin, end in _runs(rows.numbers):
            reason = f"messages {begin} to {end - 1} of {queue.name} have no entry"
            self._note(entries.fault("entry-missing", begin, reason))

    def _compare_entries(self, queue: _Queue, entries: QueueEntries, rows: Rows, is_delay: bool) -> None:
        _, numbers, offsets, sizes, codes, times = rows
        found = entries.at(numbers)
        codes_there = found["tags_code"].astype(np.int64)
        is_code = rows.has_codes(codes_there, is_delay)
        is_offset, is_size = found["physical_offset"] == offsets, found["size"] == sizes
        if is_offset.all() and is_size.all() and is_code.all():
            queue.match(numbers)
            return
        self._differing(entries, rows, found["physical_offset"], ~is_offset, "entry-offset", "offset", offsets)
        self._differing(entries, rows, found["size"], is_offset & ~is_size, "entry-size", "size", sizes)
        wrong = is_offset & is_size & ~is_code
        wanted = times if is_delay else codes
        what = "time of" if is_delay else "tag"
        self._differing(entries, rows, codes_there, wrong, "entry-tag", what, wanted)
        # Entries that name another record are reported already.
        queue.match(numbers)

    def _differing(
        self,
        entries: QueueEntries,
        rows: Rows,
        found: Numbers,
        wrong: Bits,
        code: str,
        what: str,
        wanted: Numbers,
    ) -> None:
        for at in np.flatnonzero(wrong).tolist():
            number, offset = int(rows.numbers[at]), int(rows.offsets[at])
            reason = f"entry {number} has {what} {found[at]}, its record at {offset} has {wanted[at]}"
            self._note(entries.fault(code, number, reason))

    def end(self, log_end: int, topics: set[str] | None) -> None:
        """Note entries without a record, and queues without entries.

        `topics` are the broker's topics, None if unknown.
        """
        for key, queue in self._queues.items():
            if queue.entries is not None:
                for begin, end in _unmatched(queue):
                    self._without_record(queue, queue.entries, begin, end, log_end)
            if queue.unentered:
                self._unentered(queue, self._keys.queue(key)[0], topics)

    # -- questions of a repair

    def name(self, key: int) -> tuple[str, int]:
        return self._keys.queue(key)

    def entry_offset(self, key: int, number: int) -> int | None:
        """The offset in a queue's entry; None if there is none with that number."""
        found = self._entry(key, number)
        return None if found is None else found[0]

    def code(self, key: int, number: int, offset: int) -> int | None:
        """The tag's hash or the time in a record's entry; None if the queue has another entry, or none."""
        found = self._entry(key, number)
        return found[1] if found is not None and found[0] == offset else None

    def _entry(self, key: int, number: int) -> tuple[int, int] | None:
        queue = self._queues.get(key)
        if queue is None or queue.entries is None or not 0 <= number < queue.survey.end:
            return None
        (entry,) = queue.entries.read(number, 1)
        return (int(entry["physical_offset"]), int(entry["tags_code"])) if entry["size"] > 0 else None

    def unmatched(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the entries without a record: the queue, and their number, offset and size."""
        for key, queue in self._queues.items():
            if queue.entries is None:
                continue
            for begin, end in _unmatched(queue):
                for first, entries in queue.entries.between(begin, end):
                    rows = zip(entries["physical_offset"].tolist(), entries["size"].tolist(), strict=True)
                    yield from ((key, first + at, *row) for at, row in enumerate(rows) if row[1] > 0)

    def _without_record(self, queue: _Queue, entries: QueueEntries, begin: int, end: int, log_end: int) -> None:
        ahead = "queue-ahead" if self._may_lag or self._is_cut else "entry-without-record"
        for first, found in entries.between(begin, end):
            offsets = found["physical_offset"].astype(np.int64)
            is_entry = found["size"] > 0
            is_ahead = is_entry & ((offsets >= log_end) | (self._is_cut and end == queue.survey.end))
            for code, which, text in (
                ("entry-without-record", is_entry & ~is_ahead, "name places of the log without a record of theirs"),
                (ahead, is_ahead, "name places after the log"),
            ):
                for run_begin, run_end in _runs(np.flatnonzero(which) + first):
                    reason = f"entries {run_begin} to {run_end - 1} of {queue.name} {text}"
                    self._note(entries.fault(code, run_begin, reason))

    def _unentered(self, queue: _Queue, topic: str, topics: set[str] | None) -> None:
        count = queue.unentered
        if self._may_lag:
            reason = f"{count} messages from here on are not in {queue.name}"
            self._note(self._log_fault("queue-behind", queue.unentered_offset, reason))
            return
        if not may_lack_entries(topic, topics):
            reason = f"{count} messages from here on are in {queue.name}, which has no entries"
            self._note(self._log_fault("queue-missing", queue.unentered_offset, reason))

    def _log_fault(self, code: str, offset: int, reason: str) -> Fault:
        return fault(code, *place_in_log(self._store, offset), reason)


def may_lack_entries(topic: str, topics: set[str] | None) -> bool:
    """Return whether a sound store may lack entries for messages of a topic in its log.

    `topics` are the broker's topics, None if unknown.
    """
    # A topic's queues go with it, its messages later; so do those of lite topics, which come and go.
    is_deleted = topics is not None and topic not in topics
    return is_deleted or is_lite_queue(topic) or topic.startswith(_BRANCH_PREFIX)


def place_in_log(store: StoreFiles, offset: int) -> tuple[str, int]:
    """The log file that has an offset, or the previous one if that is missing, and the place in it."""
    for file in reversed(store.log):
        if file.begin <= offset:
            return str(file.path), offset - file.begin
    return str(store.root), 0


def _runs(numbers: Numbers) -> Iterator[tuple[int, int]]:
    """The runs of consecutive numbers, as begins and ends."""
    if len(numbers):
        steps = np.flatnonzero(np.diff(numbers) != 1)
        begins = numbers[np.append(0, steps + 1)].tolist()
        ends = (numbers[np.append(steps, len(numbers) - 1)] + 1).tolist()
        yield from zip(begins, ends, strict=True)


def _unmatched(queue: _Queue) -> Iterator[tuple[int, int]]:
    at = queue.survey.begin
    if at is None:
        return
    for begin, end in sorted(queue.matched):
        if begin > at:
            yield at, begin
        at = max(at, end)
    if at < queue.survey.end:
        yield at, queue.survey.end
