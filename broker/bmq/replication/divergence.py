# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Comparison of a replica's journal with its primary's, by the replica's position, and the resulting action.

A lease has one writer, so two nodes agree about its records as far as both go. A tail that the primary does not have
was never acknowledged, and is cut off. A replica without support for truncation (the reference's) drops everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from broker.bmq.replication.positions import NOWHERE
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["CASES", "Case", "LogComparison", "SyncAction", "SyncPlan", "plan_sync"]


class SyncAction(Enum):
    """The action of a primary that synchronizes a replica."""

    SEND = "send the records that follow"
    TRUNCATE = "truncate the records that follow, then ask again"
    RESET = "drop all records, then ask again"


class LogComparison(NamedTuple):
    """The journals of a primary and a replica.

    `own` has the last record of each of the primary's leases, newest first; `position` is the replica's last record.
    The sync points are the first ones after each side's last rollover.
    """

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


class SyncPlan(NamedTuple):
    """The result of a comparison; `begin` is the last common record, as far as the primary knows."""

    case: str
    action: SyncAction
    begin: RecordNumber


class Case(NamedTuple):
    """One row of the table, of which the first that `applies` is chosen."""

    name: str
    applies: Callable[[LogComparison], bool]
    action: SyncAction
    begin: Callable[[LogComparison], RecordNumber]


def _here(logs: LogComparison) -> RecordNumber:
    return logs.position


def _nowhere(logs: LogComparison) -> RecordNumber:
    return NOWHERE


def _end_of_lease(logs: LogComparison) -> RecordNumber:
    end = logs.own_end_of_lease
    assert end is not None
    return end


def _older(logs: LogComparison) -> RecordNumber:
    return logs.older


CASES: Final = (
    Case("empty", lambda k: k.position == NOWHERE, SyncAction.SEND, _nowhere),
    Case("missed a rollover", lambda k: k.sync_point != k.own_sync_point, SyncAction.RESET, _nowhere),
    Case("equal", lambda k: k.position == k.newest, SyncAction.SEND, _here),
    Case("behind", lambda k: (end := k.own_end_of_lease) is not None and k.position <= end, SyncAction.SEND, _here),
    Case("ahead within a lease", lambda k: k.own_end_of_lease is not None, SyncAction.TRUNCATE, _end_of_lease),
    Case("under a lease of its own", lambda k: True, SyncAction.TRUNCATE, _older),
)


def plan_sync(logs: LogComparison) -> SyncPlan:
    case = next(case for case in CASES if case.applies(logs))
    begin = case.begin(logs)
    return SyncPlan(
        case.name, SyncAction.RESET if case.action is SyncAction.TRUNCATE and begin == NOWHERE else case.action, begin
    )
