"""Relations of a replica's journal to its primary's: the six cases, and every pair of histories in the right one."""

from __future__ import annotations

from random import Random

import pytest

from broker.bmq.replication.divergence import CASES, LogComparison, SyncAction, plan_sync
from broker.bmq.replication.positions import NOWHERE
from formats.bmq.disk.numbers import RecordNumber

P = RecordNumber
OWN = (P(5, 30), P(4, 12), P(2, 70))  # newest first
SYNC = P(2, 50)


@pytest.mark.parametrize(
    ("position", "sync_point", "case", "action", "begin"),
    [
        (NOWHERE, NOWHERE, "empty", SyncAction.SEND, NOWHERE),
        (P(2, 40), P(1, 8), "missed a rollover", SyncAction.RESET, NOWHERE),
        (P(2, 40), NOWHERE, "missed a rollover", SyncAction.RESET, NOWHERE),
        (P(5, 30), SYNC, "equal", SyncAction.SEND, P(5, 30)),
        (P(5, 29), SYNC, "behind", SyncAction.SEND, P(5, 29)),
        (P(4, 12), SYNC, "behind", SyncAction.SEND, P(4, 12)),
        (P(2, 50), SYNC, "behind", SyncAction.SEND, P(2, 50)),
        (P(5, 31), SYNC, "ahead within a lease", SyncAction.TRUNCATE, P(5, 30)),
        (P(2, 71), SYNC, "ahead within a lease", SyncAction.TRUNCATE, P(2, 70)),
        (P(3, 1), SYNC, "under a lease of its own", SyncAction.TRUNCATE, P(2, 70)),
        (P(6, 1), SYNC, "under a lease of its own", SyncAction.TRUNCATE, P(5, 30)),
        (P(1, 9), SYNC, "under a lease of its own", SyncAction.RESET, NOWHERE),
    ],
)
def test_the_cases(
    position: RecordNumber, sync_point: RecordNumber, case: str, action: SyncAction, begin: RecordNumber
) -> None:
    assert plan_sync(LogComparison(OWN, SYNC, position, sync_point)) == (case, action, begin)


def test_an_empty_primary_has_everything_cut() -> None:
    assert plan_sync(LogComparison((), NOWHERE, P(1, 1), NOWHERE)).action is SyncAction.RESET


def test_there_are_six() -> None:
    assert len(CASES) == 6


def test_random_histories_meet_at_their_last_common_record() -> None:
    """Repeated truncation ends at the last common record."""
    met = set()
    for seed in range(2000):
        random = Random(seed)
        own, other, common = _histories(random)
        while True:
            last = other[-1] if other else NOWHERE
            plan = plan_sync(LogComparison(_ends(own), NOWHERE, last, NOWHERE))
            met.add(plan.case)
            if plan.action is SyncAction.SEND:
                break
            # The replica drops everything after `begin`.
            shorter = [position for position in other if position <= plan.begin]
            assert len(shorter) < len(other), "it gets on"
            other = shorter
        assert other == common, f"seed {seed}"
    assert met == {case.name for case in CASES} - {"missed a rollover"}


def _histories(random: Random) -> tuple[list[RecordNumber], list[RecordNumber], list[RecordNumber]]:
    """Two journals that go the same way for a while; each lease is written by one of both, or by nobody."""
    common: list[RecordNumber] = []
    lease_id = 0
    for _ in range(random.randrange(3)):
        lease_id += random.randint(1, 2)
        common += [RecordNumber(lease_id, number) for number in range(1, random.randint(2, 6))]
    own, other = list(common), list(common)
    if common and random.random() < 0.5:
        # The writer of the last common lease went on for a while.
        tail = random.choice((own, other))
        start = common[-1].sequence_number + 1
        tail += [RecordNumber(lease_id, number) for number in range(start, start + random.randint(1, 4))]
    for _ in range(random.randrange(4)):
        lease_id += 1
        side = random.choice((own, other))
        side += [RecordNumber(lease_id, number) for number in range(1, random.randint(2, 6))]
    return own, other, common


def _ends(history: list[RecordNumber]) -> list[RecordNumber]:
    """The last position of each lease, newest first."""
    return sorted({position.primary_lease_id: position for position in history}.values(), reverse=True)
