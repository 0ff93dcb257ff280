"""The relations that two logs can have, and where they part; the epochs of a log that grows, is cut and expires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rocketmq.replication.streams.epochs import (
    LogSpan,
    begin_epoch,
    consistent_point,
    cut_epochs,
    drop_epochs,
    epoch_end,
    epoch_of,
    last_epoch,
)
from formats.rocketmq.files.epochs import EpochEntry


def epochs(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


THREE = epochs((1, 0), (3, 1000), (4, 2500))
MASTER = LogSpan(THREE, 3000)

RELATIONS = {
    "the same": (LogSpan(THREE, 3000), 3000),
    "the slave is behind in the last epoch": (LogSpan(THREE, 2700), 2700),
    "the slave is behind by an epoch": (LogSpan(THREE[:2], 2000), 2000),
    "the slave has more of the last epoch": (LogSpan(THREE, 3600), 3000),
    "the slave has more of an old epoch": (LogSpan(THREE[:2], 2800), 2500),
    "the slave was a master by itself": (LogSpan(epochs((1, 0), (2, 900)), 5000), 900),
    "the slave was a master that wrote nothing": (LogSpan(epochs((1, 0), (3, 1000), (6, 2000)), 2000), 2000),
    "an epoch began elsewhere": (LogSpan(epochs((1, 0), (3, 1200)), 2000), 1000),
    "no epoch in common": (LogSpan(epochs((7, 0)), 100), None),
    "the slave has no epochs": (LogSpan([], 100), None),
}


@pytest.mark.parametrize(("slave", "point"), RELATIONS.values(), ids=RELATIONS)
def test_relation_of_two_logs(slave: LogSpan, point: int | None) -> None:
    assert consistent_point(slave, MASTER) == point
    assert consistent_point(MASTER, slave) == point


def test_fork_of_the_golden_stores() -> None:
    """Apache's log said of them: truncateOffset is 1305."""
    slave = LogSpan(epochs((1, 0)), 2615)
    assert consistent_point(slave, LogSpan(epochs((1, 0), (5, 1305)), 2088)) == 1305


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, LogSpan, list[tuple[int, int]], LogSpan, list[tuple[int, int]]]:
    """Two logs: the length of their common part, the span of each, and each as the (epoch, offset) of its bytes."""
    spans, logs = [], []
    common = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    counts = [[*common, *draw(st.lists(st.integers(0, 3), max_size=3))] for _ in range(2)]
    point = sum(common)
    for number, pieces in enumerate(counts):
        entries: list[EpochEntry] = []
        log: list[tuple[int, int]] = []
        for at, size in enumerate(pieces):
            # After the common part each log has epochs of its own.
            epoch = at + 1 if at < len(common) else 10 * at + number
            entries = begin_epoch(entries, epoch, len(log))
            log += [(epoch, len(log) + byte) for byte in range(size)]
        spans.append(LogSpan(entries, len(log)))
        logs.append(log)
    return point, spans[0], logs[0], spans[1], logs[1]


@given(histories())
def test_logs_are_the_same_up_to_the_consistent_point(
    made: tuple[int, LogSpan, list[tuple[int, int]], LogSpan, list[tuple[int, int]]],
) -> None:
    same, one, log, other, other_log = made
    point = consistent_point(one, other)
    if point is None:
        assert same == 0
    else:
        assert log[:point] == other_log[:point]
        assert point == same


def test_epoch_without_records_stays_before_the_next() -> None:
    ours = begin_epoch(epochs((1, 0), (2, 500)), 3, 500)
    assert ours == epochs((1, 0), (2, 500), (3, 500))
    # One slave knows the epoch without records, and no later one; the other wrote to it what nobody else has.
    assert consistent_point(LogSpan(epochs((2, 500)), 500), LogSpan(ours, 900)) == 500
    assert consistent_point(LogSpan(epochs((1, 0), (2, 500)), 700), LogSpan(ours, 900)) == 500


def test_epoch_without_records_that_is_not_behind_gives_way() -> None:
    assert begin_epoch(epochs((1, 0), (3, 500)), 3, 500) == epochs((1, 0), (3, 500))
    assert begin_epoch(epochs((1, 0), (3, 500), (4, 600)), 3, 500) == epochs((1, 0), (3, 500))


def test_epoch_before_the_last_is_refused() -> None:
    with pytest.raises(ValueError, match="epoch 2 cannot follow 2"):
        begin_epoch(epochs((1, 0), (2, 500)), 2, 600)


def test_epochs_of_a_log_that_is_cut_or_expires() -> None:
    assert cut_epochs(THREE, 2500) == THREE[:2]
    assert cut_epochs(THREE, 2501) == THREE
    assert cut_epochs(THREE, 0) == []
    assert drop_epochs(THREE, 999) == THREE
    assert drop_epochs(THREE, 1000) == THREE[1:]
    assert drop_epochs(THREE, 9000) == THREE[2:]
    assert drop_epochs([], 10) == []


def test_epoch_of_an_offset() -> None:
    assert epoch_of(THREE, 999) == THREE[0]
    assert epoch_of(THREE, 1000) == THREE[1]
    assert epoch_of(THREE, 1 << 40) == THREE[2]
    assert epoch_of(THREE[1:], 999) is None
    assert (epoch_end(THREE, 1), epoch_end(THREE, 4)) == (1000, None)
    assert (last_epoch(THREE), last_epoch([])) == (4, -1)
