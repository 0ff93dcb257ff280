"""Confirms of messages that a root has not got."""

from __future__ import annotations

from broker.bmq.queue.unknown_confirms import CONFIRMS_KEPT_MAX, CONFIRMS_KEPT_MS, UnknownConfirms
from tests.broker.bmq.rig import guid


def test_the_latest_are_kept() -> None:
    confirms = UnknownConfirms()
    for number in range(CONFIRMS_KEPT_MAX + 3):
        confirms.add(7, guid(number), "foo")
    kept = confirms.since(0)
    assert len(kept) == CONFIRMS_KEPT_MAX
    assert (kept[0], kept[-1]) == ((7, guid(3), "foo"), (7, guid(CONFIRMS_KEPT_MAX + 2), "foo"))


def test_those_of_long_ago_are_forgotten_when_others_come() -> None:
    confirms = UnknownConfirms()
    confirms.add(0, guid(0), "foo")
    confirms.add(1, guid(1), "bar")
    assert confirms.since(0) == [(1, guid(1), "bar")]
    confirms.add(CONFIRMS_KEPT_MS, guid(2), "foo")
    assert confirms.since(-1) == [(1, guid(1), "bar"), (CONFIRMS_KEPT_MS, guid(2), "foo")]
