"""Any files as those of a partition are validated: to an end, with faults of the catalogue, without an exception.

The first byte selects: 0 a JOURNAL, a DATA and a QLIST file with each other, 1 to 3 one of them by itself, 4 a ledger.
The next four give the lengths of the JOURNAL and the DATA file of a set; its QLIST file is the rest.
"""

from __future__ import annotations

from formats.bmq.disk.files import FileType, StoreFileName
from formats.bmq.stores.faults import CATALOGUE, Fault
from formats.bmq.stores.validate import FileView, validate_file, validate_file_set, validate_ledger
from tests.fuzz.seeds import ledger, small_store

__all__ = ["decode", "seeds", "verify"]

BASE = 1 << 20
"""Bytes of memory: the validator's tables of messages have room for many from the start."""

KINDS = (FileType.JOURNAL, FileType.DATA, FileType.QLIST)


def _views(data: bytes) -> list[FileView]:
    journal = 5 + int.from_bytes(data[1:3], "big")
    rest = journal + int.from_bytes(data[3:5], "big")
    parts = (data[5:journal], data[journal:rest], data[rest:])
    return [_view(kind, part) for kind, part in zip(KINDS, parts, strict=True)]


def _view(kind: FileType, part: bytes) -> FileView:
    return FileView(str(StoreFileName(0, "20261121_000000", kind)), part)


def decode(data: bytes) -> list[Fault]:
    mode = data[0] if data else 0
    if mode == 0:
        return list(validate_file_set(*_views(data)))
    if mode <= len(KINDS):
        kind = KINDS[mode - 1]
        return list(validate_file(_view(kind, data[1:]), kind))
    return list(validate_ledger(FileView("bmq_csl_20261121_000000_0102030405.bmq_csl", data[1:])))


def verify(data: bytes, faults: list[Fault]) -> None:
    for fault in faults:
        assert CATALOGUE[fault.code].severity is fault.severity
        assert 0 <= fault.offset <= len(data)
        assert fault.reason


def seeds() -> list[bytes]:
    out = [b"\4" + ledger(3)]
    for files in (small_store(), small_store(8, 5)):
        journal, data, qlist = (files[kind] for kind in KINDS)
        out.append(b"\0" + len(journal).to_bytes(2, "big") + len(data).to_bytes(2, "big") + journal + data + qlist)
        out += [b"\1" + journal, b"\2" + data, b"\3" + qlist]
    return out
