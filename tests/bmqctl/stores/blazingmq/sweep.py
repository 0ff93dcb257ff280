"""Flips the bits of a small store, one at a time, and lists the faults that this makes for each field."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import formats.bmq.disk
from formats.bmq.disk.data import DATA_HEADER
from formats.bmq.disk.files import (
    DATA_FILE_HEADER,
    FILE_HEADER,
    JOURNAL_FILE_HEADER,
    QLIST_FILE_HEADER,
)
from formats.bmq.disk.journal import LAYOUTS
from formats.bmq.disk.keys import HASH_SIZE, KEY_SIZE
from formats.bmq.disk.ledger import LEDGER_FILE_HEADER, LEDGER_RECORD_HEADER
from formats.bmq.disk.padding import WORD, padding
from formats.bmq.disk.qlist import APP_ID_HEADER, QUEUE_RECORD_HEADER, QueueRecord
from formats.bmq.stores.check_ledger import LedgerState, check_agreement, check_ledger
from formats.bmq.stores.faults import Fault
from formats.bmq.stores.recover import iter_data, iter_journal, iter_ledger, iter_qlist
from formats.bmq.stores.validate import FileView, SetChecker, check_file_set
from formats.schema import Buffer, Layout
from tests.bmqctl.stores.blazingmq.small_store import EXTENSIONS, build_small_store
from tests.golden.archives import only

__all__ = ["DOCUMENT", "SWEPT_MESSAGES", "Field", "Row", "Sweep", "file_of", "read_table", "rows_of", "table_of"]

JOURNAL, DATA, QLIST, LEDGER = EXTENSIONS

T = TypeVar("T")

DOCUMENT = Path(formats.bmq.disk.__file__).with_name("CHECKSUMS.md")
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
SWEPT_MESSAGES = 4


class Field(NamedTuple):
    """Some bits of a file, counted from its start; `name` is "Structure.field"."""

    extension: str
    name: str
    start: int
    width: int


class Row(NamedTuple):
    """The result for a field: its bits (in all places where it occurs), the number noticed, and by which faults.

    `codes` are not all faults caused by the damage, but as few as are needed to notice every noticed bit.
    """

    file: str
    name: str
    bits: int
    noticed: int
    codes: tuple[str, ...]

    @property
    def share(self) -> str:
        return "all" if self.noticed == self.bits else "some" if self.noticed else "none"


class Sweep:
    """The files of one sound store, and what the checks say when a bit of them is another."""

    def __init__(self, store: Path) -> None:
        self.names = {extension: only(store, extension).name for extension in EXTENSIONS}
        self.files = {name: bytearray(only(store, name).read_bytes()) for name in EXTENSIONS}
        self.fields = list(_fields(self.files))
        faults, self._set = _run_set(self._views())
        ledger_faults, self._state = _run_ledger(self._view(LEDGER))
        assert self._set is not None
        assert not [*faults, *ledger_faults, *check_agreement(self._state, [self._set])]

    def _view(self, extension: str) -> FileView:
        return FileView(self.names[extension], bytes(self.files[extension]))

    def _views(self) -> list[FileView]:
        return [self._view(extension) for extension in (JOURNAL, DATA, QLIST)]

    def codes(self, extension: str, bit: int) -> set[str]:
        """The faults in this file with that bit flipped, or those in others; bits count from each byte's highest."""
        content, at, mask = self.files[extension], bit // 8, 0x80 >> bit % 8
        content[at] ^= mask
        try:
            faults = self._faults(extension)
        finally:
            content[at] ^= mask
        here = {fault.code for fault in faults if fault.file == self.names[extension]}
        return here or {fault.code for fault in faults}

    def _faults(self, extension: str) -> list[Fault]:
        state, checked = self._state, self._set
        if extension == LEDGER:
            faults, state = _run_ledger(self._view(LEDGER))
        else:
            faults, checked = _run_set(self._views())
        return faults + list(check_agreement(state, [] if checked is None else [checked]))


def _run_set(views: list[FileView]) -> tuple[list[Fault], SetChecker | None]:
    return _drain(check_file_set(*views))


def _run_ledger(view: FileView) -> tuple[list[Fault], LedgerState]:
    return _drain(check_ledger(view))


def _drain(found: Generator[Fault, None, T]) -> tuple[list[Fault], T]:
    faults = []
    while True:
        try:
            faults.append(next(found))
        except StopIteration as end:
            return faults, end.value


def _fields(files: Mapping[str, Buffer]) -> Iterator[Field]:
    """Every field of every structure, in the files' order."""
    seconds: dict[str, Layout[Any]] = {JOURNAL: JOURNAL_FILE_HEADER, DATA: DATA_FILE_HEADER, QLIST: QLIST_FILE_HEADER}
    for extension, layout in seconds.items():
        yield from _of_layout(extension, FILE_HEADER, 0)
        yield from _of_layout(extension, layout, FILE_HEADER.size)
    for offset, record in iter_journal(files[JOURNAL]):
        yield from _of_layout(JOURNAL, LAYOUTS[record.type], offset)
    for data in iter_data(files[DATA]):
        yield from _of_layout(DATA, DATA_HEADER, data.offset)
        end = data.app_data_offset + data.app_data_size
        yield _bytes(DATA, "application data", data.app_data_offset, end)
        yield _bytes(DATA, "padding", end, data.end)
    for entry in iter_qlist(files[QLIST]):
        yield from _of_entry(entry)
    yield from _of_layout(LEDGER, LEDGER_FILE_HEADER, 0)
    for each in iter_ledger(files[LEDGER]):
        yield from _of_layout(LEDGER, LEDGER_RECORD_HEADER, each.offset)
        body = each.offset + LEDGER_RECORD_HEADER.size
        yield _bytes(LEDGER, "body", body, body + len(each.body))
        yield _bytes(LEDGER, "padding", body + len(each.body), each.end - WORD)
        yield _bytes(LEDGER, "checksum", each.end - WORD, each.end)


def _of_layout(extension: str, layout: Layout[Any], offset: int) -> Iterator[Field]:
    start = offset * 8
    for name, width in layout.field_bits.items():
        yield Field(extension, f"{layout.name}.{name}", start, width)
        start += width


def _of_entry(entry: QueueRecord) -> Iterator[Field]:
    yield from _of_layout(QLIST, QUEUE_RECORD_HEADER, entry.offset)
    at = entry.offset + QUEUE_RECORD_HEADER.size
    for what, text in (("uri", entry.uri), *(("app id", app.app_id) for app in entry.apps)):
        if what == "app id":
            yield from _of_layout(QLIST, APP_ID_HEADER, at)
            at += APP_ID_HEADER.size
        end = at + len(text.encode())
        yield _bytes(QLIST, what, at, end)
        at = end + len(padding(end - at))
        yield _bytes(QLIST, f"padding of {what}", end, at)
        key = "queue key" if what == "uri" else "app key"
        yield _bytes(QLIST, key, at, at + KEY_SIZE)
        yield _bytes(QLIST, f"zeros after {key}", at + KEY_SIZE, at + HASH_SIZE)
        at += HASH_SIZE
    yield _bytes(QLIST, "magic", at, entry.end)


def _bytes(extension: str, name: str, start: int, end: int) -> Field:
    return Field(extension, name, start * 8, (end - start) * 8)


def rows_of(sweep: Sweep) -> list[Row]:
    """One row for each field, from all its bits: minutes of work."""
    found: dict[tuple[str, str], list[set[str]]] = {}
    for field in sweep.fields:
        bits = range(field.start, field.start + field.width)
        found.setdefault((file_of(field), field.name), []).extend(sweep.codes(field.extension, bit) for bit in bits)
    return [Row(file, name, len(bits), sum(map(bool, bits)), _telling(bits)) for (file, name), bits in found.items()]


def file_of(field: Field) -> str:
    """The kind of the file that a field is in, as the table has it."""
    return {JOURNAL: "JOURNAL", DATA: "DATA", QLIST: "QLIST", LEDGER: "LEDGER"}[field.extension]


def _telling(bits: list[set[str]]) -> tuple[str, ...]:
    """Choose few codes such that each bit that is noticed has one of them, the most frequent first."""
    chosen = []
    left = [codes for codes in bits if codes]
    while left:
        counts = Counter(code for codes in left for code in codes)
        best = min(counts, key=lambda code: (-counts[code], code))
        chosen.append(best)
        left = [codes for codes in left if best not in codes]
    return tuple(chosen)


def table_of(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| file | field | bits noticed | by |", "| --- | --- | --- | --- |"]
    for row in rows:
        share = row.share if row.share != "some" else f"some ({row.noticed} of {row.bits})"
        lines.append(f"| {row.file} | {row.name} | {share} | {', '.join(row.codes)} |")
    return "\n".join(lines) + "\n"


def read_table(document: str) -> str:
    """The table in the document, between its marks."""
    _, _, rest = document.partition(BEGIN)
    table, _, _ = rest.partition(END)
    return table


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--write"]):
        print("usage: scripts/sweep [--write]", file=sys.stderr)
        return 2
    with TemporaryDirectory() as directory:
        table = table_of(rows_of(Sweep(build_small_store(Path(directory) / "store", SWEPT_MESSAGES))))
    document = DOCUMENT.read_text()
    written = read_table(document)
    if arguments:
        DOCUMENT.write_text(document.replace(BEGIN + written, BEGIN + table))
        return 0
    sys.stdout.writelines(unified_diff(written.splitlines(True), table.splitlines(True), str(DOCUMENT), "measured"))
    return int(written != table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
