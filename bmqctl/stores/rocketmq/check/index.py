"""Checks of the index, in itself and against the log: slots, chains and headers; each entry's key, offset and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.rocketmq.faults import fault
from bmqctl.stores.rocketmq.read.derived import Keys
from bmqctl.stores.rocketmq.read.files import StoreFiles
from bmqctl.stores.rocketmq.read.index_files import CHUNK_ENTRIES, IndexLayout, OpenIndexFile, find_layout, opened
from bmqctl.stores.rocketmq.read.records import Numbers
from formats.bmq.stores.faults import Fault
from formats.rocketmq.files.index import INDEX_ENTRY, IndexHeader

__all__ = ["IndexCheck"]

Note = Callable[[Fault], None]

_SECONDS_MAX: Final = 0x7FFFFFFF
_ENTRY_BYTES: Final = INDEX_ENTRY.size
_OFFSET_AT: Final = 24
_COUNT_AT: Final = 36


class _File(NamedTuple):
    """A file with entries: its header, and the number after its last entry."""

    path: Any
    header: IndexHeader
    end: int


class _Entries(NamedTuple):
    """Entries in order. `bases` are the times from which they count; 0 if not in the file."""

    hashes: Numbers
    offsets: Numbers
    seconds: Numbers
    bases: Numbers
    files: Numbers
    numbers: Numbers

    def part(self, which: Any) -> _Entries:
        return _Entries(*(column[which] for column in self))


class IndexCheck:
    """The check of a store's index files. Faults go to `note`.

    `may_lag` means that a broker runs or has crashed, `is_cut` that it has cut the log, but not the index.
    """

    def __init__(self, store: StoreFiles, note: Note, may_lag: bool, is_cut: bool = False) -> None:
        self._note = note
        self._may_lag = may_lag or is_cut
        self._is_cut = is_cut
        self._root = str(store.root / "index")
        self._layout = IndexLayout(0, 0)
        self._files: list[_File] = []
        layout = find_layout(store.index_files)
        if layout is not None:
            self._layout = layout
            for path in store.index_files:
                with opened(path) as file:
                    if file is not None:
                        self._check_file(file)
        else:
            self._check_unused(store)
        self.has_files = bool(store.index_files)
        self.ends = (0, 0) if not self._files else (self._files[-1].header.end_ms, self._files[-1].header.end_offset)
        self._blocks = self._read()
        self._block = next(self._blocks, None)
        self._seen = -1
        self._with_tags: bool | None = None
        self._behind = 0

    def _check_unused(self, store: StoreFiles) -> None:
        for path in store.index_files:
            with opened(path) as file:
                if file is not None and not 0 <= file.header.index_count <= 1:
                    self._tell("index-layout", file, 0, "header and entries do not show how many slots it has")

    # -- the files by themselves

    def _check_file(self, file: OpenIndexFile) -> None:
        layout, header = self._layout, file.header
        if file.size != layout.size:
            self._tell("index-layout", file, 0, f"has {file.size} bytes, the others {layout.size}")
            return
        if header.index_count < 0:
            self._tell("index-header", file, _COUNT_AT, f"says that the next entry is number {header.index_count}")
            return
        end = max(1, header.index_count)
        if end > layout.entries:
            self._tell(
                "index-header", file, _COUNT_AT, f"counts {end - 1} entries, and has room for {layout.entries - 1}"
            )
            return
        if end == 1:
            return
        table = np.zeros(layout.slots, np.int32)
        first = last = 0
        for number in range(1, end, CHUNK_ENTRIES):
            entries = file.entries(layout, number, min(CHUNK_ENTRIES, end - number))
            self._check_chains(file, number, entries, table)
            first = int(entries["physical_offset"][0]) if number == 1 else first
            last = int(entries["physical_offset"][-1])
        self._check_slots(file, table, end)
        used = int(np.count_nonzero(table))
        for name, said, found in (
            ("first message at", header.begin_offset, first),
            ("last message at", header.end_offset, last),
            ("number of slots in use", header.slot_count, used),
        ):
            if said != found:
                self._tell("index-header", file, _OFFSET_AT, f"says {said} for the {name}, the entries {found}")
        self._files.append(_File(file.path, header, end))

    def _check_chains(self, file: OpenIndexFile, first: int, entries: NDArray[Any], table: NDArray[np.int32]) -> None:
        """Check that each entry names its predecessor in its slot; `table` has the last ones."""
        slots = entries["key_hash"].astype(np.uint32) % np.uint32(self._layout.slots)
        numbers = np.arange(first, first + len(entries), dtype=np.int32)
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        is_first = np.append(True, slots[1:] != slots[:-1])
        before = np.append(np.int32(0), numbers[order[:-1]])
        before[is_first] = table[slots[is_first]]
        table[slots[np.append(is_first[1:], True)]] = numbers[order[np.append(is_first[1:], True)]]
        wanted = np.empty_like(before)
        wanted[order] = before
        for at in np.flatnonzero(entries["previous"] != wanted).tolist():
            number = first + at
            reason = f"entry {number} leads to {entries['previous'][at]}, the one before it in its slot is {wanted[at]}"
            self._tell("index-chain", file, self._layout.entries_at + number * _ENTRY_BYTES + 16, reason)

    def _check_slots(self, file: OpenIndexFile, table: NDArray[np.int32], end: int) -> None:
        slots = file.slots(self._layout)
        wrong = slots != table
        if self._may_lag:
            # Entered since the header was read.
            wrong &= slots < end
        for slot in np.flatnonzero(wrong).tolist():
            reason = f"slot {slot} has entry {slots[slot]}, its last one is {table[slot]}"
            self._tell("index-slot", file, 40 + slot * 4, reason)

    def _tell(self, code: str, file: OpenIndexFile, offset: int, reason: str) -> None:
        self._note(fault(code, str(file.path), offset, reason))

    # -- the files against the log

    def _read(self) -> Iterator[_Entries]:
        for place, file in enumerate(self._files):
            for number in range(1, file.end, CHUNK_ENTRIES):
                with opened(file.path) as current:
                    if current is None:
                        break
                    rows = current.entries(self._layout, number, min(CHUNK_ENTRIES, file.end - number))
                bases = np.full(len(rows), file.header.begin_ms)
                if number == 1:
                    # The first entry counts from the last time of the previous file.
                    bases[0] = 0
                yield _Entries(
                    rows["key_hash"].astype(np.int64),
                    rows["physical_offset"].astype(np.int64),
                    rows["seconds"].astype(np.int64),
                    bases,
                    np.full(len(rows), place),
                    np.arange(number, number + len(rows)),
                )

    def _take(self, end: int) -> list[_Entries]:
        """Take the next entries of messages before a log offset, and return those not seen yet."""
        taken = []
        while self._block is not None:
            others = np.flatnonzero(self._block.offsets >= end)
            count = int(others[0]) if len(others) else len(self._block.offsets)
            part = self._block.part(slice(count))
            # A restart may enter the last message again.
            is_new = part.offsets > self._seen
            if is_new.any():
                taken.append(part.part(is_new))
            if len(others):
                self._block = self._block.part(slice(count, None))
                break
            self._block = next(self._blocks, None)
        return taken

    def records(self, keys: Keys) -> None:
        if self._block is not None and self._seen < 0:
            # Earlier files were removed, or there was no index.
            keys = keys.where(keys.offsets >= self._block.offsets[0])
        if not self._files or not len(keys):
            self._behind += len(keys) if not self._files else 0
            return
        is_behind = keys.offsets > self.ends[1]
        self._behind += int(np.count_nonzero(is_behind))
        keys = keys.where(~is_behind)
        if not len(keys):
            return
        taken = self._take(int(keys.offsets[-1]) + 1)
        entries = _joined(taken)
        self._seen = int(keys.offsets[-1])
        self._compare(keys, entries)

    def _compare(self, keys: Keys, entries: _Entries | None) -> None:
        if entries is None or not len(entries.hashes):
            self._lacking(Counter(_pairs(keys.hashes, keys.offsets)))
            return
        if self._with_tags is None:
            self._with_tags = not keys.is_tag.any() or bool(np.isin(keys.hashes[keys.is_tag], entries.hashes).any())
        if not self._with_tags:
            keys = keys.where(~keys.is_tag)
        same = len(keys) == len(entries.hashes)
        if not (same and (keys.offsets == entries.offsets).all() and (keys.hashes == entries.hashes).all()):
            wanted = Counter(_pairs(keys.hashes, keys.offsets))
            found = Counter(_pairs(entries.hashes, entries.offsets))
            self._lacking(wanted - found)
            for at, pair in enumerate(_pairs(entries.hashes, entries.offsets)):
                if pair not in wanted:
                    reason = f"names offset {pair[1]}, where no record has such a key"
                    self._entry_fault("index-lacks" if self._is_cut else "index-key", entries, at, reason)
        self._check_times(keys, entries)

    def _check_times(self, keys: Keys, entries: _Entries) -> None:
        if not len(keys) or self._is_cut:
            return
        places = np.minimum(np.searchsorted(keys.offsets, entries.offsets), len(keys) - 1)
        passed = (keys.times[places] - entries.bases) // 1000
        wanted = np.where(entries.bases > 0, np.clip(passed, 0, _SECONDS_MAX), entries.seconds)
        wrong = (wanted != entries.seconds) & (keys.offsets[places] == entries.offsets)
        for at in np.flatnonzero(wrong).tolist():
            reason = f"says {entries.seconds[at]} seconds after the file's first message, the record {wanted[at]}"
            self._entry_fault("index-time", entries, at, reason)

    def _entry_fault(self, code: str, entries: _Entries, at: int, reason: str) -> None:
        number, file = int(entries.numbers[at]), self._files[int(entries.files[at])]
        place = self._layout.entries_at + number * _ENTRY_BYTES
        self._note(fault(code, str(file.path), place, f"entry {number} {reason}"))

    def _lacking(self, missing: Counter[tuple[int, int]]) -> None:
        if missing:
            offsets = sorted(offset for _, offset in missing)
            reason = f"{missing.total()} keys of messages from {offsets[0]} to {offsets[-1]} are not in it"
            self._note(fault("index-lacks", self._root, 0, reason))

    def end(self) -> None:
        first: _Entries | None = None
        count = 0
        while self._block is not None:
            left = self._block.part(self._block.offsets > self._seen)
            if first is None and len(left.offsets):
                first = left.part(slice(1))
            count += len(left.offsets)
            self._block = next(self._blocks, None)
        if first is not None and not self._may_lag:
            self._entry_fault("index-key", first, 0, f"and {count - 1} more name offsets without a record of theirs")
        if self._behind:
            code = "index-behind" if self._may_lag else "index-lacks"
            self._note(fault(code, self._root, 0, f"the last {self._behind} keys of the log are not in it"))


def _joined(taken: list[_Entries]) -> _Entries | None:
    if not taken:
        return None
    return taken[0] if len(taken) == 1 else _Entries(*map(np.concatenate, zip(*taken, strict=True)))


def _pairs(hashes: NDArray[Any], offsets: Numbers) -> Iterator[tuple[int, int]]:
    return zip(hashes.tolist(), offsets.tolist(), strict=True)
