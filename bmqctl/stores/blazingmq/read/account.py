"""A store reader's account, for either system: records and bytes read, damaged and missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Account"]

_PLACES_MAX: Final = 8


@dataclass(slots=True)
class Account:
    """Counts of records read, and of places that should have records.

    A damaged place has bytes that are not a record; a missing one is in no file. `places` describes the first places. A
    store's unfinished end is neither. With `compares`, the reader verifies checksums.
    """

    records: int = 0
    record_bytes: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    missing: int = 0
    missing_bytes: int = 0
    places: list[str] = field(default_factory=list)
    compares: bool = False

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not self.missing

    def read(self, records: int, size: int) -> None:
        self.records += records
        self.record_bytes += size

    def lose(self, where: str, size: int, *, is_missing: bool = False, count: int = 1) -> None:
        """Count damaged or missing places, `size` bytes in all, that `where` describes."""
        if is_missing:
            self.missing += count
            self.missing_bytes += size
        else:
            self.damaged += count
            self.damaged_bytes += size
        if len(self.places) < _PLACES_MAX:
            self.places.append(where)

    def add(self, other: Account) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.places += other.places[: _PLACES_MAX - len(self.places)]

    @classmethod
    def total(cls, parts: Iterable[Account]) -> Account:
        found = cls()
        for part in parts:
            found.add(part)
        return found

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_COUNTS, "places")}

    def words(self) -> str:
        """One line of what is damaged or missing, with the first place; empty if nothing is."""
        losses = ((self.damaged, self.damaged_bytes, "damaged"), (self.missing, self.missing_bytes, "missing"))
        parts = [f"{count:,} places with {size:,} bytes are {what}" for count, size, what in losses if count]
        first = f" (the first: {self.places[0]})" if self.places else ""
        return ", ".join(parts) + first if parts else ""


_COUNTS: Final = ("records", "record_bytes", "damaged", "damaged_bytes", "missing", "missing_bytes")
