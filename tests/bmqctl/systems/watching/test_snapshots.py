"""Statistics of a node that refuses a snapshot for a moment."""

from __future__ import annotations

from typing import Any

import pytest

from bmqctl.systems.watching import blazingmq

TOO_OFTEN = '{"error":{"message":"Cannot save the recent snapshot, trying to make snapshots too often"}}'


class Node:
    """Refuses as many snapshots as it is made with."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def send(self, command: str) -> str:
        assert command == "ENCODING JSON_COMPACT STAT SHOW"
        self.refusals -= 1
        return TOO_OFTEN if self.refusals >= 0 else "{}"


@pytest.mark.parametrize(("refusals", "answer", "pauses"), [(0, "{}", 0), (3, "{}", 3), (99, TOO_OFTEN, 10)])
def test_a_refused_snapshot_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, refusals: int, answer: str, pauses: int
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    node: Any = Node(refusals)
    assert blazingmq._snapshot(node) == answer
    assert len(slept) == pauses
