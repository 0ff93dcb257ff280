"""Any three files as those of a partition are validated: to an end, with faults of the catalogue, without an exception.

The first four bytes say how long the JOURNAL and the DATA file are; what is left is the QLIST file. A ledger of any
bytes is validated likewise.
"""

from __future__ import annotations

from formats.disk.faults import CATALOGUE, Fault
from formats.disk.files import FileType, StoreFileName
from formats.disk.validate import FileView, validate_file, validate_file_set, validate_ledger
from tests.fuzz.seeds import ledger, small_store

__all__ = ["decode", "seeds", "verify"]

KINDS = (FileType.JOURNAL, FileType.DATA, FileType.QLIST)


def _views(data: bytes) -> list[FileView]:
    journal = 4 + int.from_bytes(data[:2], "big")
    rest = journal + int.from_bytes(data[2:4], "big")
    parts = (data[4:journal], data[journal:rest], data[rest:])
    return [
        FileView(str(StoreFileName(0, "20261121_000000", kind)), part) for kind, part in zip(KINDS, parts, strict=True)
    ]


def decode(data: bytes) -> list[Fault]:
    views = _views(data)
    return [
        *validate_file_set(*views),
        *validate_file_set(views[0]),
        *(fault for view, kind in zip(views, KINDS, strict=True) for fault in validate_file(view, kind)),
        *validate_ledger(FileView("bmq_csl_20261121_000000_0102030405.bmq_csl", data)),
    ]


def verify(data: bytes, faults: list[Fault]) -> None:
    for fault in faults:
        assert CATALOGUE[fault.code].severity is fault.severity
        assert 0 <= fault.offset <= len(data)
        assert fault.reason


def seeds() -> list[bytes]:
    out = [ledger(3)]
    for files in (small_store(), small_store(8, 5)):
        journal, data, qlist = (files[kind] for kind in KINDS)
        out.append(len(journal).to_bytes(2, "big") + len(data).to_bytes(2, "big") + journal + data + qlist)
    return out
