"""The replicas whose answers cover everything acknowledged: every case of small clusters."""

from __future__ import annotations

from itertools import combinations

import pytest

from broker.bmq.consensus.coverage import covers


@pytest.mark.parametrize("nodes", range(1, 8))
def test_record_of_a_quorum_is_never_missed(nodes: int) -> None:
    quorum = nodes // 2 + 1
    for told in range(nodes + 1):
        # A quorum that acknowledged and a quorum that reported have a node in common.
        is_safe = all(set(holders) & set(range(told)) for holders in combinations(range(nodes), quorum))
        for damaged in range(nodes + 1 - told):
            assert covers(told, damaged, nodes, quorum) == (is_safe and told + damaged == nodes), (told, damaged)


def test_two_nodes_heal_each_other() -> None:
    assert covers(1, 1, 2, 2)
    assert not covers(1, 0, 2, 2)


def test_of_three_one_is_not_enough() -> None:
    assert not covers(1, 2, 3, 2)
    assert not covers(1, 1, 3, 2)
