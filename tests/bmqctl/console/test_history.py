"""The past of rows, bounded, with gaps where nothing is known."""

from __future__ import annotations

from bmqctl.console.history import POINTS_MAX, SampleHistory
from bmqctl.systems.watching.model import Row


def row(name: str, backlog: int | None, rate: float | None = 1.0, part: str = "") -> Row:
    return Row(name, part, "n", rate, 2.0, backlog, None, None, None)


def test_points_are_those_since_a_row_is_known() -> None:
    history = SampleHistory()
    history.add(10.0, [row("a", 1)])
    history.add(12.0, [row("a", 2, None), row("b", 5), row("b", 4, part="x")])
    assert history.points("a") == {
        "at": [10.0, 12.0],
        "rate_in": [1.0, None],
        "rate_out": [2.0, 2.0],
        "backlog": [1, 2],
    }
    assert history.points("b")["at"] == [12.0]
    assert history.points("b", "x")["backlog"] == [4]
    assert history.points("c") == {"at": [], "rate_in": [], "rate_out": [], "backlog": []}


def test_a_line_is_broken_where_nobody_looked() -> None:
    history = SampleHistory()
    for at_s in (0.0, 2.0, 500.0):
        history.add(at_s, [row("a", 1)])
    assert history.points("a")["at"] == [0.0, 2.0, 32.0, 500.0]
    assert history.points("a")["backlog"] == [1, 1, None, 1]


def test_the_oldest_points_and_rows_that_are_gone_are_forgotten() -> None:
    history = SampleHistory()
    history.add(0.0, [row("a", 1), row("gone", 7)])
    for number in range(1, POINTS_MAX + 1):
        history.add(float(number), [row("a", number)])
        if number == 1:
            assert history.points("gone")["backlog"] == [7, None]
    assert history.points("a")["at"] == [float(number) for number in range(1, POINTS_MAX + 1)]
    assert history.points("gone")["at"] == []
