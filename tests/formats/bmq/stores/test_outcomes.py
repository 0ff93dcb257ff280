"""Outcomes of messages: one for each end, and one spelling for columns and one for command lines."""

from __future__ import annotations

from formats.bmq.stores.lives import End
from formats.bmq.stores.outcomes import ENDED, MessageOutcome


def test_every_end_has_an_outcome_and_a_message_alive_has_none_of_these() -> None:
    assert set(ENDED) == set(End)
    alive = {MessageOutcome.OUTSTANDING, MessageOutcome.PARTIALLY_CONFIRMED}
    assert set(ENDED.values()) == set(MessageOutcome) - alive


def test_a_message_that_was_deleted_with_its_queue_was_purged() -> None:
    assert ENDED[End.QUEUE_DELETED] is MessageOutcome.PURGED


def test_the_two_spellings() -> None:
    assert [(str(each), each.word) for each in MessageOutcome] == [
        ("outstanding", "outstanding"),
        ("partially_confirmed", "partially-confirmed"),
        ("confirmed", "confirmed"),
        ("expired", "expired"),
        ("no_quorum", "no-quorum"),
        ("purged", "purged"),
    ]
