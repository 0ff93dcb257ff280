"""The one place where texts of others are made harmless."""

from __future__ import annotations

import io

import pytest
import typer
from rich.console import Console

from bmqctl.common.harmless import csv_text, guard_output, one_line
from bmqctl.common.render import Column, LateProgress, print_csv, print_lines, print_table
from bmqctl.common.tables import ResultConsole
from bmqctl.systems.checking.verdict import Finding, Status
from tests.bmqctl.hostile_texts_rig import HOSTILE, assert_harmless, cells


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_one_way_out_of_the_process(hostile: str) -> None:
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", errors)
        put_back = guard_output()
        print(hostile)
        typer.echo(f"of {hostile}", err=True)
        ResultConsole(width=200).print(hostile)
        put_back()
        print("\x1b")
    assert out.getvalue().endswith("\x1b\n")
    assert_harmless(out.getvalue()[:-2] + errors.getvalue())


def test_tables_lines_and_progress(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"a": hostile, "b": {"x": hostile}}], [Column("a", hostile), Column("b", "b")], title=hostile)
    print_lines([hostile, Finding(hostile, Status.CRITICAL, hostile).line()])
    assert_harmless(capsys.readouterr().out)
    screen = io.StringIO()
    with LateProgress(hostile, Console(file=screen, width=80, force_terminal=True)) as progress:
        progress.DELAY_S = 0.0
        progress(1, 2)
    assert one_line(hostile)[:12] in screen.getvalue()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1", "'=1"),
        ("@x", "'@x"),
        ("+1+2", "'+1+2"),
        ("-cmd", "'-cmd"),
        ("-5", "-5"),
        ("+4.5", "+4.5"),
        ("=5", "'=5"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ("one\r\ntwo\n", "one\r\ntwo\n"),
        ("over\rwritten", "over\\x0dwritten"),
        ("plain ä", "plain ä"),
    ],
)
def test_cells_of_csv(text: str, cell: str) -> None:
    assert csv_text(text) == cell
    out = io.StringIO()
    print_csv([{"a": text, "b": -5, "c": {"=": "="}}], ["a", "b", "c"], out)
    assert cells(out.getvalue()) == ["a", "b", "c", cell, "-5", '{"=": "="}']
