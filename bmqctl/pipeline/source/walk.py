"""A task's walk over its records: sound ones within the wanted numbers, with their DATA files."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.pipeline.source.names import Names
from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.partitions import Journal
from bmqctl.pipeline.source.plan import RECORDS_PER_CHUNK, Chunk, Part, scan_segments
from bmqctl.pipeline.source.pushdown import Bounds
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import map_data
from formats.bmq.disk.columns import key_numbers, sound_kinds
from formats.bmq.disk.data import DATA_HEADER, MESSAGE_WORDS_MASK, unpack_sizes
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, LAYOUTS, RecordType, decode_record
from formats.bmq.padding import WORD
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["DataFiles", "offsets_of", "select", "up_to", "walk"]

_WITH_QUEUE = (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION, RecordType.QUEUE_OP)


def walk(
    part: Part, options: ReadOptions, account: Account, *, use_after: bool = True
) -> Iterator[tuple[Chunk, NDArray[Any]]]:
    """Yield chunks, with each record's RecordType as uint8: 0 for an unsound or unwanted one.

    Raises StoreError at an unsound one in failfast mode. Without `use_after`, all records from the first on are wanted.
    The account gets all records; if a part has several shares, only the first share's walk counts them.
    """
    if part.share:
        account = Account()
    seen = 0
    until = options.until.get(part.partition_id)
    after = options.after.get(part.partition_id) if use_after else None
    for chunk in scan_segments(part.journals, part.segments, RECORDS_PER_CHUNK * part.shares):
        kinds = sound_kinds(chunk.records)
        if options.failfast and not kinds.all():
            raise StoreError(_damage(part, chunk, int(np.flatnonzero(kinds == 0)[0])))
        seen += len(kinds)
        sound = int(np.count_nonzero(kinds))
        account.read(sound, sound * JOURNAL_RECORD_SIZE)
        if sound < len(kinds):
            where = _damage(part, chunk, int(np.flatnonzero(kinds == 0)[0]))
            account.lose(where, (len(kinds) - sound) * JOURNAL_RECORD_SIZE, count=len(kinds) - sound)
        if after is not None:
            kinds *= ~up_to(chunk.records, after)
        if until is not None:
            kinds *= up_to(chunk.records, until)
        yield chunk, kinds
    blank = sum(segment.records for segment in part.segments) - seen
    if blank:
        where = f"{part.journals[0].path}: zeros in place of {blank} records"
        account.lose(where, blank * JOURNAL_RECORD_SIZE, count=blank)


def up_to(records: NDArray[Any], number: tuple[int, int]) -> NDArray[Any]:
    lease = ANY_RECORD.column(records, "primary_lease_id")
    sequence = ANY_RECORD.column(records, "sequence_number")
    found: NDArray[Any] = (lease < number[0]) | ((lease == number[0]) & (sequence <= number[1]))
    return found


def _damage(part: Part, chunk: Chunk, row: int) -> str:
    journal = part.journals[chunk.journal]
    offset = journal.first_record_offset + (chunk.place + row) * JOURNAL_RECORD_SIZE
    try:
        decode_record(chunk.records[row].tobytes())
    except FormatError as error:
        return f"{journal.path}: {error.shifted(offset)}; `bmqctl journal validate` lists all faults"
    raise AssertionError("a sound record")


def select(chunk: Chunk, kinds: NDArray[Any], names: Names, bounds: Bounds, *, by_time: bool = True) -> NDArray[Any]:
    """`kinds`, with 0 where a record is out of `bounds`. Without `by_time`, its time is ignored."""
    if bounds.types is not None:
        wanted = [kind for kind in RecordType if kind.name in bounds.types]
        kinds = kinds * np.isin(kinds, wanted)
    if by_time and bounds.since is not None:
        kinds = kinds * (ANY_RECORD.column(chunk.records, "timestamp") >= np.uint64(max(0, bounds.since)))
    if by_time and bounds.until is not None:
        kinds = kinds * (ANY_RECORD.column(chunk.records, "timestamp") <= np.uint64(max(0, bounds.until)))
    keys = _queue_keys(names, bounds)
    if keys is not None:
        found = np.zeros(len(kinds), np.bool_)
        for kind in _WITH_QUEUE:
            at = np.flatnonzero(kinds == kind)
            records = chunk.records[at].view(LAYOUTS[kind].dtype)
            found[at] = np.isin(key_numbers(records, LAYOUTS[kind], "queue_key"), keys)
        kinds = kinds * found
    return kinds


def _queue_keys(names: Names, bounds: Bounds) -> NDArray[Any] | None:
    """Return the keys of the queues in `bounds`; None for all queues."""
    if bounds.queue_uris is None and bounds.queue_keys is None:
        return None
    keys = {key for key, uri in names.uris.items() if bounds.queue_uris is None or uri in bounds.queue_uris}
    if bounds.queue_keys is not None:
        asked = {int(text, 16) for text in bounds.queue_keys if len(text) == 10 and text.isalnum()}
        keys = asked if bounds.queue_uris is None else keys & asked
    return np.array(sorted(keys), np.uint64)


def offsets_of(part: Part, positions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return, for records at `positions`, the journal (its index in the part) and the offset in it, in bytes."""
    begins = np.array([segment.position for segment in part.segments])
    at = np.searchsorted(begins, positions, "right") - 1
    journal = np.array([segment.journal for segment in part.segments])[at]
    place = np.array([segment.place for segment in part.segments])[at] + positions - begins[at]
    first = np.array([each.first_record_offset for each in part.journals])[journal]
    return journal, first + place * JOURNAL_RECORD_SIZE


class DataFiles:
    """The DATA files of some journals, mapped on demand; empty where there is none."""

    def __init__(self, journals: Sequence[Journal], options: ReadOptions, account: Account) -> None:
        self.account = account
        self._journals = journals
        self._failfast = options.failfast
        self._mapped: dict[int, Buffer] = {}

    def of(self, journal: int) -> Buffer:
        """A journal's DATA file. Releases pages read before, lest memory grow with the file."""
        if journal not in self._mapped:
            path = self._journals[journal].data
            self._mapped[journal] = b"" if path is None else map_data(Path(path))
        mapped = self._mapped[journal]
        owner = mapped.obj if isinstance(mapped, memoryview) else None
        if isinstance(owner, mmap.mmap):
            owner.madvise(mmap.MADV_DONTNEED)
        return mapped

    def lose(self, journal: int, offsets: NDArray[Any], size: int, text: str | None = None) -> None:
        """Account for damaged messages at `offsets` of a journal's DATA file, of `size` bytes in all.

        Messages in a missing file or part, according to `find_lost_files`, are counted only there.
        """
        path, stated = self._journals[journal].data, self._journals[journal].data_stated
        if path is None or not len(offsets):
            return
        data = self.of(journal)
        ends = np.array([_least_end(data, offset) for offset in offsets.tolist()], np.int64)
        offsets = offsets[~((len(data) < ends) & (ends <= stated))]
        beyond = offsets + DATA_HEADER.size > len(data)
        for lost, is_missing in ((offsets[~beyond], False), (offsets[beyond], True)):
            if len(lost):
                where = f"{path}: {text or f'no intact message at offset {int(lost[0])}'}"
                self.account.lose(where, 0 if is_missing else size, is_missing=is_missing, count=len(lost))

    def path(self, journal: int) -> str | None:
        """The name of a file for the error that ends a failfast job; None in other modes."""
        return (
            self._journals[journal].data or f"no DATA file for {self._journals[journal].path}"
            if self._failfast
            else None
        )


def _least_end(data: Buffer, offset: int) -> int:
    """The end of the record at `offset` of a DATA file, or of its header if that is cut."""
    if offset + DATA_HEADER.size > len(data):
        return offset + DATA_HEADER.size
    words: int = unpack_sizes(data, offset)[0] & MESSAGE_WORDS_MASK
    return offset + words * WORD
