"""Relation of a replica's journal to its primary's, by the replica's position, and the resulting action.

A lease has one writer, so two nodes that both have records of a lease agree about them as far as both go. A tail that
the primary does not have was never acknowledged: it is cut off at the last record that both have. A replica that does
not support truncation (the reference's) drops everything instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from broker.bmq.replication.positions import NOWHERE
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["CASES", "Case", "Cure", "Kinship", "Verdict", "judge"]


class Cure(Enum):
    PUSH = "send the records that follow"
    CUT = "truncate the records that follow, then ask again"
    DROP = "drop all records, then ask again"


class Kinship(NamedTuple):
    """The positions of both sides: `own` is the primary's history, newest lease first. Sync points: last rollover's."""

    own: Sequence[RecordNumber]
    own_sync_point: RecordNumber
    position: RecordNumber
    sync_point: RecordNumber

    @property
    def newest(self) -> RecordNumber:
        return self.own[0] if self.own else NOWHERE

    @property
    def own_end_of_lease(self) -> RecordNumber | None:
        """Return the primary's end under the replica's newest lease; None if it has no record of that lease."""
        return next((each for each in self.own if each.primary_lease_id == self.position.primary_lease_id), None)

    @property
    def older(self) -> RecordNumber:
        """Return the last of the primary's records before the replica's newest lease."""
        return next((each for each in self.own if each.primary_lease_id < self.position.primary_lease_id), NOWHERE)


class Verdict(NamedTuple):
    """The result of a comparison; `begin` is the last common record, as far as the primary can tell."""

    case: str
    cure: Cure
    begin: RecordNumber


class Case(NamedTuple):
    """One row of the table, of which the first that `applies` is chosen."""

    name: str
    applies: Callable[[Kinship], bool]
    cure: Cure
    begin: Callable[[Kinship], RecordNumber]


def _here(kinship: Kinship) -> RecordNumber:
    return kinship.position


def _nowhere(kinship: Kinship) -> RecordNumber:
    return NOWHERE


def _end_of_lease(kinship: Kinship) -> RecordNumber:
    end = kinship.own_end_of_lease
    assert end is not None
    return end


def _older(kinship: Kinship) -> RecordNumber:
    return kinship.older


CASES = (
    Case("empty", lambda k: k.position == NOWHERE, Cure.PUSH, _nowhere),
    Case("missed a rollover", lambda k: k.sync_point != k.own_sync_point, Cure.DROP, _nowhere),
    Case("equal", lambda k: k.position == k.newest, Cure.PUSH, _here),
    Case("behind", lambda k: (end := k.own_end_of_lease) is not None and k.position <= end, Cure.PUSH, _here),
    Case("ahead within a lease", lambda k: k.own_end_of_lease is not None, Cure.CUT, _end_of_lease),
    Case("under a lease of its own", lambda k: True, Cure.CUT, _older),
)


def judge(kinship: Kinship) -> Verdict:
    """Classify the replica's position."""
    case = next(case for case in CASES if case.applies(kinship))
    begin = case.begin(kinship)
    return Verdict(case.name, Cure.DROP if case.cure is Cure.CUT and begin == NOWHERE else case.cure, begin)
