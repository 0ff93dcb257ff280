"""The judgement of scripts/soak-bridge finds what it is to find."""

from __future__ import annotations

import pytest

from scripts.endurance.bridge_load import Number, account_faults, faults_of


def numbers(*found: int, lane: int = 0) -> list[Number]:
    return [Number(lane, number) for number in found]


@pytest.mark.parametrize(
    "found",
    [
        numbers(0, 1, 2, 3),
        # Repeats in their order, and of messages that nobody acknowledged.
        numbers(0, 1, 2, 1, 2, 3, 7),
        numbers(0, 1, 2, 3, 0, 1, 2, 3),
        [*numbers(0, 1), *numbers(5, lane=1), *numbers(2, 3)],
    ],
)
def test_complete_sequence_in_order_has_no_faults(found: list[Number]) -> None:
    assert faults_of(numbers(0, 1, 2, 3), found) == []


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (numbers(0, 1, 3), "1 acknowledged messages are lost"),
        (numbers(0, 2, 1, 2, 3), "lane 0: 1 first copies out of order: [(2, 1)]"),
        (numbers(0, 1, 2, 3, 1), "lane 0: 1 last copies out of order: [(-1, -3)]"),
    ],
)
def test_faults_are_found(found: list[Number], fault: str) -> None:
    (only,) = faults_of(numbers(0, 1, 2, 3), found)
    assert only.startswith(fault)


def test_accounts_have_to_add_up() -> None:
    account = {"taken": 5, "delivered": 3, "returned": 2, "refused": 0, "in_flight": 0}
    assert account_faults(account) == []
    for name in ("taken", "delivered", "refused", "in_flight"):
        assert account_faults({**account, name: account[name] + 1})
