"""What the jobs and the source ask of a store's directory."""

from __future__ import annotations

import mmap
from pathlib import Path

__all__ = ["StoreError", "find_ledgers", "map_file"]


class StoreError(Exception):
    """A store that cannot be read; the message is one line."""


def map_file(path: Path) -> memoryview:
    """The file's bytes, mapped for reading; unmapped when the last view of them is gone. An empty file gives none."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def find_ledgers(store: Path) -> list[Path]:
    """The cluster-state ledgers of the store, oldest first."""
    return sorted(store.glob("*.bmq_csl"))
