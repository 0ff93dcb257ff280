"""The faults that a check found: the first ones, and counts of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from formats.bmq.stores.faults import CATALOGUE, Fault, FaultKind, Severity

__all__ = ["Report"]

T = TypeVar("T")


@dataclass(slots=True)
class Report:
    """The result of a check; `faults` has the first `limit`, `counts` counts all by their codes in `catalogue`.

    `unit` names the things that `records` counts.
    """

    limit: int
    files: list[str] = field(default_factory=list)
    records: int = 0
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    catalogue: Mapping[str, FaultKind] = field(default_factory=lambda: CATALOGUE)
    unit: str = "journal records"

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARNING)

    def _count(self, severity: Severity) -> int:
        return sum(count for code, count in self.counts.items() if self.catalogue[code].severity is severity)

    def take(self, found: Generator[Fault, None, T]) -> T:
        while True:
            try:
                one = next(found)
            except StopIteration as end:
                result: T = end.value
                return result
            self.note(one)

    def add(self, found: Iterable[Fault]) -> None:
        for one in found:
            self.note(one)

    def note(self, one: Fault) -> None:
        self.counts[one.code] += 1
        if len(self.faults) < self.limit:
            self.faults.append(one)
