# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The numbers that order records: those of a partition's journal, and those of a cluster's ledger."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

__all__ = ["LEASE_ID_MAX", "LedgerNumber", "RecordNumber"]

# Lease ids have 32 bits.
LEASE_ID_MAX: Final = 0xFFFF_FFFF


class _Numbered(Protocol):
    """A journal record, or a protocol message that names one."""

    @property
    def primary_lease_id(self) -> int: ...

    @property
    def sequence_number(self) -> int: ...


class RecordNumber(NamedTuple):
    """The number of a journal record, printed as `<lease id>-<sequence number>`.

    Numbers increase throughout the history of a partition, over all rollovers.
    """

    primary_lease_id: int
    sequence_number: int

    def __str__(self) -> str:
        return f"{self.primary_lease_id}-{self.sequence_number}"

    @classmethod
    def of(cls, numbered: _Numbered) -> RecordNumber:
        """Return the number of a record, or the one that a message names."""
        return cls(numbered.primary_lease_id, numbered.sequence_number)


class LedgerNumber(NamedTuple):
    """The number of a ledger's record: a leader's term, and a sequence number within the term."""

    term: int
    sequence_number: int

    def __str__(self) -> str:
        return f"{self.term}-{self.sequence_number}"
