"""The plan of a replay of a RocketMQ store: its messages in log order."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.carrying.replay.messages import StoredRecord
from bmqctl.carrying.replay.plan import Matches, Plan, Progress, StoreChanged
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.wanted import BadFilter
from bmqctl.stores.rocketmq.read.files import LOG_FOLDER, LogFile, StoreFiles
from bmqctl.stores.rocketmq.read.filters import LogFilters, LogSelector
from bmqctl.stores.rocketmq.read.payload import decompressed
from bmqctl.stores.rocketmq.read.queues import count_gone
from bmqctl.stores.rocketmq.read.records import RECORD_BYTES_MAX, LogRecords
from bmqctl.stores.rocketmq.read.scan import LogChunk, LogScan
from bmqctl.stores.rocketmq.read.tables import read_delays, read_progress
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, TopicKind, kind_of
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.errors import FormatError
from formats.rocketmq.files.record import HEAD_BYTES, Record, decode_record, read_head
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.properties import decode_properties

__all__ = ["LOG_ENTRY", "LogSelection", "make_log_plan", "text_values"]

LOG_ENTRY: Final = np.dtype([("time", np.int64), ("place", np.int64), ("journal", np.uint16), ("queue", np.uint32)])
"""A message of RocketMQ: milliseconds since 1970, its offset in the log, 0, and the number of its topic."""

_PER_S: Final = 1000
_INTEGER_DIGITS_MAX: Final = 18
_NAMES_SHOWN: Final = 5

Progresses = Mapping[str, Mapping[int, int]]
"""The next offset by topic and queue."""

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
_PIECE_BYTES: Final = 1 << 20
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_QUEUE_DIGITS_MAX: Final = 9


def delayed_place(properties: bytes) -> tuple[str, int]:
    """The topic and queue of a delayed message. Raises FormatError if it does not name them."""
    found = decode_properties(properties)
    topic, queue_id = found.get(REAL_TOPIC, ""), found.get(REAL_QUEUE, "")
    if not topic or not (queue_id.isascii() and queue_id.isdecimal()) or len(queue_id) > _QUEUE_DIGITS_MAX:
        raise FormatError("Record.properties", 0, f"a delayed message without {REAL_TOPIC} and {REAL_QUEUE}")
    return topic, int(queue_id)


class LogSource:
    """A commit log; a context manager. Records requested in order are read in pieces of 1 MiB."""

    def __init__(self, store: StoreFiles) -> None:
        self.path = store.root / LOG_FOLDER
        self._files: Sequence[LogFile] = store.log
        self._open: tuple[Path, int] | None = None
        self._piece_at = 0
        self._piece = b""

    def __enter__(self) -> LogSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def read(self, place: int) -> StoredRecord:
        """Read the message whose record begins at offset `place`. Raises FormatError if a part of it is damaged."""
        try:
            record = self._record(place)
            if not record.is_body_sound:
                raise FormatError("Record.body", 0, "the checksum of the body differs")
            topic, queue_id, level = record.topic, record.queue_id, 0
            if topic == DELAY_TOPIC:
                level = queue_id + 1
                topic, queue_id = delayed_place(record.properties)
            flags = record.system_flags
            body, size = decompressed(memoryview(record.body), flags, DECOMPRESSED_SIZE_MAX)
            if size != len(body):
                raise FormatError("Record.body", 0, f"{size} bytes, more than {DECOMPRESSED_SIZE_MAX}")
        except FormatError as error:
            raise error.shifted(place) from None
        plain = record._replace(body=body, system_flags=flags & ~_COMPRESSED)
        return StoredRecord(plain, topic, queue_id, bool(flags & _COMPRESSED), level)

    def where(self, place: int) -> str:
        return f"{self.path.name}: the message at offset {place}"

    def _record(self, place: int) -> Record:
        file = next((each for each in self._files if each.begin <= place < each.end), None)
        if file is None:
            raise FormatError("Record", 0, "no file has this offset any more")
        at = place - self._piece_at
        if not 0 <= at <= len(self._piece) - HEAD_BYTES:
            at = self._load(file, place, _PIECE_BYTES)
        size = self._size(at, file.end - place)
        if at + size > len(self._piece):
            at = self._load(file, place, max(size, _PIECE_BYTES))
        record = decode_record(self._piece, at)
        if not isinstance(record, Record):
            raise FormatError("Record", 0, "no message's record any more")
        return record

    def _size(self, at: int, left: int) -> int:
        head = read_head(self._piece[at : at + HEAD_BYTES], 0, max(left, HEAD_BYTES)) if self._piece else None
        if head is None or head[0] > RECORD_BYTES_MAX:
            raise FormatError("Record", 0, "no message's record any more")
        return head[0]

    def _load(self, file: LogFile, place: int, size: int) -> int:
        if self._open is None or self._open[0] != file.path:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            self.__exit__(None, None, None)
            self._open = file.path, descriptor
        self._piece = os.pread(self._open[1], size, place - file.begin)
        self._piece_at = place
        return 0


@dataclass(frozen=True)
class LogSelection:
    """Criteria of messages: all must match, each with one of its values; an empty one always matches.

    Without topics, messages of the applications' topics are selected. `groups` select messages that one of them has not
    consumed yet; `delayed` adds those still delayed by level. `matches` decides by the properties.
    """

    filters: LogFilters = field(default_factory=LogFilters)
    groups: frozenset[str] = frozenset()
    delayed: bool = False
    matches: Matches | None = None


def text_values(properties: Mapping[str, str]) -> dict[str, bool | int | str]:
    """Convert textual properties to numbers and truth values for comparison by an expression."""
    return {name: _value(text) for name, text in properties.items()}


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _INTEGER_DIGITS_MAX
    return int(text) if is_number and str(int(text)) == text else text


def make_log_plan(
    store: StoreFiles,
    selection: LogSelection,
    stack: ExitStack,
    ends: Mapping[str, int] | None = None,
    on_progress: Progress = lambda done, total: None,
) -> Plan:
    """Collect the messages of a store; its files stay open in `stack`.

    With the `ends` of an earlier plan, later records are left out; raises `StoreChanged` if the log has become shorter.
    Raises BadFilter if the store lacks a topic or group, NotAStoreFile if one of its tables cannot be read.
    """
    source = stack.enter_context(LogSource(store))
    walk = _LogWalk(store, selection, None if ends is None else ends.get(LOG_FOLDER))
    parts = walk.collect(on_progress)
    found = Plan([source], np.zeros(0, LOG_ENTRY), list(walk.numbers), {LOG_FOLDER: walk.log_end}, per_s=_PER_S)
    widths: dict[str, int] = {}
    for queue in store.queues():
        widths[queue.topic] = max(widths.get(queue.topic, 0), queue.queue_id + 1)
    found.widths = widths
    found.known = frozenset(walk.seen).union(widths)
    for topic in sorted(selection.filters.topics - found.known):
        raise BadFilter(f"--topic {topic}: not in the store; known names: {_listed(found.known)}")
    if parts:
        found.entries = np.concatenate(parts)
        found.entries["time"] = np.maximum.accumulate(found.entries["time"])
    found.damaged = walk.damaged
    if walk.gone:
        found.left_out = [f"{store.root}: {walk.gone} messages that its queues name are not there"]
    found.unseen = tuple(sorted(walk.unseen))
    return found


def _listed(names: Collection[str]) -> str:
    listed = ", ".join(sorted(names)[:_NAMES_SHOWN])
    return (listed or "none") + (", ..." if len(names) > _NAMES_SHOWN else "")


class _LogWalk:
    """Collects the messages of one log; `numbers` are those of the topics, in order of appearance."""

    def __init__(self, store: StoreFiles, selection: LogSelection, end: int | None) -> None:
        self.numbers: dict[str, int] = {}
        self.seen: set[str] = set()
        self.damaged = 0
        self.gone = 0
        self.log_end = 0
        self._store = store
        self._selection = selection
        self._end = end
        filters = selection.filters
        self._selector = LogSelector(filters)
        # A delayed message has its topic and queue among its properties.
        self._delayed = LogSelector(replace(filters, topics=frozenset(), queue_ids=frozenset()))
        self._groups = [_progress_of(store, group) for group in sorted(selection.groups)]
        self._delays = _delays(store) if selection.delayed else {}

    @property
    def unseen(self) -> set[str]:
        unseen = self._selector.unseen
        return unseen & self._delayed.unseen if self._selection.delayed else unseen

    def collect(self, on_progress: Progress) -> list[NDArray[Any]]:
        files, filters = self._store.log, self._selection.filters
        scan = LogScan(files, filters.begin(files))
        parts = []
        is_whole = True
        for chunk in scan.chunks():
            on_progress(chunk.end - scan.begin, max(1, self._store.end - scan.begin))
            records = chunk.records
            if self._end is not None:
                records = records.where(records.ends + records.offset <= self._end)
            self._count_faults(chunk)
            if len(records):
                part = self._entries(records)
                if len(part):
                    parts.append(part)
            if filters.ends_before(chunk.records, chunk.end):
                is_whole = False
                break
            if self._end is not None and chunk.end >= self._end:
                is_whole = scan.end <= self._end
                break
        if self._end is not None and scan.end < self._end:
            raise StoreChanged(f"{self._store.root} has a commit log up to {scan.end}, and had one up to {self._end}")
        self.log_end = scan.end if self._end is None else self._end
        if is_whole:
            self.gone = sum(count_gone(self._store, self.log_end, self._wants))
        return parts

    def _wants(self, topic: str) -> bool:
        if topic == DELAY_TOPIC and self._selection.delayed:
            return True
        topics = self._selection.filters.topics
        return topic in topics if topics else kind_of(topic) is TopicKind.ORDINARY

    def _count_faults(self, chunk: LogChunk) -> None:
        faults = (fault for fault in chunk.faults if fault.is_loss and self._selection.filters.passes_fault(fault))
        self.damaged += sum(self._end is None or fault.offset < self._end for fault in faults)

    def _entries(self, records: LogRecords) -> NDArray[Any]:
        kept = [(index, topic) for index, topic in enumerate(self._topics(records)) if topic]
        if self._selection.matches is not None and kept:
            properties = records.properties()
            kept = [each for each in kept if _is_match(self._selection.matches, properties[each[0]])]
        entries = np.zeros(len(kept), LOG_ENTRY)
        indices = [index for index, _ in kept]
        entries["time"] = np.maximum(records.stored_ms[indices], 0)
        entries["place"] = records.offsets[indices]
        entries["queue"] = [self.numbers.setdefault(topic, len(self.numbers)) for _, topic in kept]
        return entries

    def _topics(self, records: LogRecords) -> list[str]:
        names = [topic.decode(errors="replace") for topic in records.topics()]
        self.seen.update(names)
        wanted = set(self._selector.select(records).offsets.tolist())
        is_given = bool(self._selection.filters.topics)
        offsets = records.offsets.tolist()
        topics = [
            name if offset in wanted and (is_given or kind_of(name) is TopicKind.ORDINARY) else ""
            for name, offset in zip(names, offsets, strict=True)
        ]
        if self._groups:
            self._leave_out_consumed(records, topics)
        if self._selection.delayed and DELAY_TOPIC in names:
            self._add_delayed(records, names, topics)
        return topics

    def _leave_out_consumed(self, records: LogRecords, topics: list[str]) -> None:
        numbers = zip(records.front("queue_id").tolist(), records.front("queue_offset").tolist(), strict=True)
        for index, (queue_id, offset) in enumerate(numbers):
            name = topics[index]
            if name and not any(
                name in progress and offset >= progress[name].get(queue_id, 0) for progress in self._groups
            ):
                topics[index] = ""

    def _add_delayed(self, records: LogRecords, names: list[str], topics: list[str]) -> None:
        filters = self._selection.filters
        wanted = set(self._delayed.select(records).offsets.tolist())
        queue_ids, queue_offsets = records.front("queue_id").tolist(), records.front("queue_offset").tolist()
        properties = records.properties()
        for index, offset in enumerate(records.offsets.tolist()):
            if names[index] != DELAY_TOPIC or offset not in wanted:
                continue
            if queue_offsets[index] < self._delays.get(queue_ids[index] + 1, 0):
                continue
            try:
                topic, queue_id = delayed_place(properties[index])
            except FormatError:
                self.damaged += 1
                continue
            self.seen.add(topic)
            is_wanted = not filters.topics or topic in filters.topics
            topics[index] = topic if is_wanted and (not filters.queue_ids or queue_id in filters.queue_ids) else ""


def _is_match(matches: Matches, encoded: bytes) -> bool:
    """Return whether properties match, with apparent numbers and truth values as such, or all as texts."""
    texts = decode_properties(encoded)
    return matches(text_values(texts)) or matches(dict(texts))


def _progress_of(store: StoreFiles, group: str) -> Progresses:
    """The progress of a group in its topics. Raises BadFilter if the store lacks the group."""
    faults: list[str] = []
    table = read_progress(store, faults)
    _check(faults)
    found = {topic: offsets for (topic, of_group), offsets in table.items() if of_group == group}
    if not found:
        raise BadFilter(f"--group {group}: has no progress in the store; known names: {_listed({g for _, g in table})}")
    return found


def _delays(store: StoreFiles) -> Mapping[int, int]:
    faults: list[str] = []
    found = read_delays(store, faults)
    _check(faults)
    return found


def _check(faults: list[str]) -> None:
    """Raise NotAStoreFile for a table that cannot be read."""
    for fault in faults:
        raise NotAStoreFile(fault)
