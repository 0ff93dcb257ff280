"""The nodes by which a cluster is asked."""

from __future__ import annotations

from bmqctl.console.blazingmq import Entries

ONE, TWO, THREE = ("one", 1), ("two", 2), ("three", 3)


def test_the_node_that_answered_last_comes_first() -> None:
    entries = Entries([ONE, TWO, ONE])
    assert entries.in_order() == [ONE, TWO]
    entries.answered(TWO)
    entries.learn([THREE, ONE])
    assert entries.in_order() == [TWO, ONE, THREE]
    entries.answered(THREE)
    entries.learn([])
    # A node that the cluster no longer lists is asked until another one answers.
    assert entries.in_order() == [THREE, ONE, TWO]
    entries.answered(ONE)
    assert entries.in_order() == [ONE, TWO]


def test_a_cluster_that_tells_of_too_many_is_not_believed() -> None:
    entries = Entries([ONE])
    entries.learn(("node", number) for number in range(10_000))
    assert len(entries.in_order()) == 65
