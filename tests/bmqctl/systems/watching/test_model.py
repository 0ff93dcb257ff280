"""Rates come of two samples; rows are filtered, sorted and summed."""

from __future__ import annotations

import pytest

from bmqctl.systems.watching.cells import cells_of
from bmqctl.systems.watching.model import COLUMNS, Counted, Row, Sample, Selection, rows_of, selected
from bmqctl.systems.watching.watcher import purge_text

A, B = "bmq://d/a", "bmq://d/b"


def sample(at_s: float, *counted: Counted, system: str = "BlazingMQ") -> Sample:
    return Sample(at_s, system, counted)


def row(name: str, part: str = "", node: str = "n1", **values: float | None) -> Row:
    empty: dict[str, float | None] = dict.fromkeys(COLUMNS[3:])
    return Row(name, part, node, **{**empty, **values})  # type: ignore[arg-type]


def test_rates_are_differences_over_the_time_between() -> None:
    before = sample(10, Counted(A, "", "n1", 100, 50, 50), Counted(B, "", "n1", 9, 9, 0))
    after = sample(12, Counted(A, "", "n1", 300, 60, 240, 7.5, 2, 3), Counted(B, "", "n2", 99, 99, 0))
    found = rows_of(before, after)
    assert found[0] == Row(A, "", "n1", 100.0, 5.0, 240, 7.5, 2, 3)
    # Another primary counts from another beginning.
    assert (found[1].rate_in, found[1].rate_out) == (None, None)


@pytest.mark.parametrize(
    "before",
    [
        None,
        sample(10, Counted(A, "", "n1", 500, 500, 0)),
        sample(12, Counted(A, "", "n1", 1, 1, 0)),
        sample(10, Counted(A, "", "n1", None, None, 0)),
        sample(10, Counted(A, "", "n1", 1, 1, 0), system="RocketMQ"),
        sample(10, Counted(A, "app", "n1", 1, 1, 0)),
    ],
)
def test_there_is_no_rate_without_an_earlier_count(before: Sample | None) -> None:
    (found,) = rows_of(before, sample(12, Counted(A, "", "n1", 100, 100, 5)))
    assert (found.rate_in, found.rate_out, found.backlog) == (None, None, 5)


def test_rows_are_sorted_with_the_unknown_at_the_end() -> None:
    rows = [row("x", backlog=None), row("y", backlog=1), row("z", backlog=5), row("w", backlog=5)]
    assert [each.name for each in selected(rows, Selection())] == ["w", "z", "y", "x"]
    assert [each.name for each in selected(rows, Selection(is_descending=False))] == ["y", "w", "z", "x"]
    assert [each.name for each in selected(rows, Selection("name"))] == ["z", "y", "x", "w"]


def test_rows_of_brokers_are_summed() -> None:
    rows = [
        row("t", node="a", rate_in=1.0, backlog=3, oldest_s=9.0, consumers=2, lag=100),
        row("t", node="b", rate_in=2.0, backlog=4, oldest_s=1.0, consumers=None, lag=7),
        row("t", "g", node="b", backlog=4),
    ]
    assert selected(rows, Selection()) == [Row("t", "", "2 nodes", 3.0, None, 7, 9.0, 2, 100)]
    assert selected(rows, Selection(node="b")) == [rows[1]]
    assert selected(rows, Selection(within="t")) == [rows[2]]
    assert selected(rows, Selection(within="other")) == []


def test_a_filter_is_part_of_a_name_in_any_case() -> None:
    rows = [row("Orders"), row("bills"), row("Orders", "Audit")]
    assert [each.name for each in selected(rows, Selection(text="oRD"))] == ["Orders"]
    assert [each.part for each in selected(rows, Selection(text="audit", within="Orders"))] == ["Audit"]


def test_cells() -> None:
    cells = cells_of(row("q", rate_in=1234.4, rate_out=0.25, backlog=1_000_000, oldest_s=3_725.0))
    assert list(cells) == list(COLUMNS)
    assert list(cells.values())[3:] == ["1,234", "0.2", "1,000,000", "1 h 2 min", "-", "-"]
    assert [cells_of(row("q", oldest_s=age))["oldest_s"] for age in (0.04, 61, 90_000)] == [
        "0.0 s",
        "1 min 1 s",
        "1 d 1 h",
    ]


def test_a_purge_is_named_with_its_extent() -> None:
    assert "Purge bmq://d/a: all messages, now 1,234, are removed" in purge_text(row(A, backlog=1234))
    assert "Purge app x of bmq://d/a: the 7 messages" in purge_text(row(A, "x", backlog=7))
    assert "an unknown number of" in purge_text(row(A))
