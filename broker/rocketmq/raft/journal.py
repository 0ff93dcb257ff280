"""The durable state of a controller: its term, its vote, and its log, written to a file before any of it is sent.

The file grows by blocks. When the log has become long, the state that it led to replaces its beginning, in a new file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from formats.errors import FormatError
from formats.rocketmq.remoting.raft import Entry, JournalRecord, encode_block, find_block, read_block

__all__ = ["GrowingFile", "Journal", "JournalDamaged", "Snapshot"]

log = logging.getLogger("broker.rocketmq.controller")


class JournalDamaged(Exception):
    """Invalid content of a file; the text says where and why."""


class GrowingFile(Protocol):
    """A file that grows at its end. Both writes return when the bytes are on the disk, or raise `OSError`.

    After an error it is unchanged, or can only be replaced.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_sound(self) -> bool: ...

    def read(self) -> bytes:
        """Return its content; nothing if it is missing."""
        ...

    def append(self, data: bytes) -> None: ...

    def replace(self, data: bytes) -> None:
        """Replace its content, atomically."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state to which all entries up to one have led; `term` is that entry's."""

    index: int = 0
    term: int = 0
    text: str = ""


@dataclass(slots=True)
class Journal:
    """The log, as in the file. A method that raises `OSError` changes nothing here."""

    file: GrowingFile
    term: int = 0
    vote: str = ""
    snapshot: Snapshot = field(default_factory=Snapshot)
    entries: list[Entry] = field(default_factory=list)

    # -- reading

    @classmethod
    def open(cls, file: GrowingFile, check: Callable[[str], None], check_state: Callable[[str], None]) -> Journal:
        """Read a file. `check` and `check_state` raise `FormatError` for an invalid command or state.

        An incomplete block at the end was never sent to another controller, and is removed. Raises `JournalDamaged` if
        whole ones follow, and `OSError`.
        """
        journal, data, at = cls(file), file.read(), 0
        try:
            while (block := read_block(data, at)) is not None:
                for record in block.records:
                    journal._take(record, check, check_state)
                at = block.end
        except (FormatError, ValueError) as error:
            raise JournalDamaged(f"{file.name}: the block at offset {at} cannot be used: {error}") from None
        if at < len(data):
            later = find_block(data, at)
            if later is not None:
                raise JournalDamaged(f"{file.name}: no block at offset {at}, but one at {later}")
            log.warning("%s: %d bytes at its end are not whole, and are taken off", file.name, len(data) - at)
            file.replace(data[:at])
        return journal

    def _take(self, record: JournalRecord, check: Callable[[str], None], check_state: Callable[[str], None]) -> None:
        if record.kind == "vote":
            if record.term < self.term:
                raise ValueError(f"term {record.term} follows {self.term}")
            self.term, self.vote = record.term, record.text
        elif record.kind == "snapshot":
            check_state(record.text)
            self.snapshot, self.entries = Snapshot(record.position, record.term, record.text), []
        elif record.kind == "entry":
            if not self.first <= record.position <= self.last + 1 or record.term > self.term:
                raise ValueError(f"entry {record.position} of term {record.term} follows entry {self.last}")
            if record.text:
                check(record.text)
            del self.entries[record.position - self.first :]
            self.entries.append(Entry(record.term, record.text))
        else:
            raise ValueError(f"a record of kind {record.kind[:40]!r}")

    # -- the log

    @property
    def first(self) -> int:
        return self.snapshot.index + 1

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.snapshot.term

    def term_of(self, index: int) -> int | None:
        """Return the term of an entry; None if it is missing or in the snapshot."""
        if index == self.snapshot.index:
            return self.snapshot.term
        return self.entries[index - self.first].term if self.first <= index <= self.last else None

    def entry(self, index: int) -> Entry:
        assert index >= self.first
        return self.entries[index - self.first]

    def slice(self, begin: int, most: int) -> list[Entry]:
        """Return up to `most` entries, from one that is in the log on."""
        assert begin >= self.first
        return self.entries[begin - self.first : begin - self.first + most]

    # -- writing

    def keep_vote(self, term: int, vote: str) -> None:
        self._write([JournalRecord("vote", term, 0, vote)])
        self.term, self.vote = term, vote

    def keep_entries(self, begin: int, entries: Sequence[Entry]) -> None:
        assert self.first <= begin <= self.last + 1
        assert entries
        self._write([JournalRecord("entry", entry.term, begin + n, entry.text) for n, entry in enumerate(entries)])
        del self.entries[begin - self.first :]
        self.entries += entries

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the entries up to a snapshot's by it. Later entries stay, if they follow it."""
        follows = self.term_of(snapshot.index) == snapshot.term
        entries = self.entries[snapshot.index + 1 - self.first :] if follows else []
        self.file.replace(_whole(self.term, self.vote, snapshot, entries))
        self.snapshot, self.entries = snapshot, entries

    def _write(self, records: list[JournalRecord]) -> None:
        if not self.file.is_sound:
            # After a failed flush, the content of the disk is unknown.
            self.file.replace(_whole(self.term, self.vote, self.snapshot, self.entries))
        self.file.append(encode_block(records))


def _whole(term: int, vote: str, snapshot: Snapshot, entries: Sequence[Entry]) -> bytes:
    records = [JournalRecord("vote", term, 0, vote)]
    if snapshot.index:
        records.append(JournalRecord("snapshot", snapshot.term, snapshot.index, snapshot.text))
    begin = snapshot.index + 1
    records += [JournalRecord("entry", entry.term, begin + n, entry.text) for n, entry in enumerate(entries)]
    return encode_block(records)
