"""Access to a store's directory for the jobs and the data source."""

from __future__ import annotations

from pathlib import Path

__all__ = ["StoreError", "find_ledgers"]


class StoreError(Exception):
    """A store that cannot be read; one line."""


def find_ledgers(store: Path) -> list[Path]:
    return sorted(store.glob("*.bmq_csl"))
