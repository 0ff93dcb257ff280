from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.console import Console

from bmqctl.common.render import (
    Column,
    LateProgress,
    OutputFormat,
    choose_format,
    parse_format,
    print_json_lines,
    print_rows,
    print_table,
    refuse,
)
from bmqctl.common.tables import ResultConsole


def test_json_lines_are_written_one_by_one() -> None:
    out = io.StringIO()

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(3):
            assert out.getvalue().count("\n") == number
            yield {"number": number, "key": bytes([number, 255])}

    print_json_lines(rows(), out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"number": number, "key": f"0{number}FF"} for number in range(3)
    ]


def test_json_lines_refuse_what_they_do_not_know() -> None:
    with pytest.raises(TypeError, match="set"):
        print_json_lines([{"a": {1}}], io.StringIO())


def test_tables_print_markup_as_it_is() -> None:
    out = io.StringIO()
    columns = [Column("a", "first", 6, right=True), Column("b", "second")]
    print_table([{"a": 1, "b": "[red]x[/red]"}, {"b": b"\xab"}], columns, ResultConsole(file=out, width=80))
    title, one, two = out.getvalue().splitlines()
    assert title.split() == ["first", "second"]
    assert one.split() == ["1", "[red]x[/red]"]
    assert two.split() == ["AB"]


def test_names_look_like_no_other_row_of_a_table() -> None:
    out = io.StringIO()
    rows = [{"a": "name\nother  9", "b": "x"}]
    print_table(rows, [Column("a", "first"), Column("b", "second")], ResultConsole(file=out, width=80))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "first       second",
        "name        x",
        "  other  9",
    ]


def test_tables_print_values_with_parts_as_json() -> None:
    out = io.StringIO()
    print_table([{"a": {"é": [True, None]}}], [Column("a", "first")], ResultConsole(file=out, width=80))
    assert out.getvalue().splitlines()[1].strip() == '{"é": [true, null]}'


def test_tables_print_what_would_command_the_terminal_as_text() -> None:
    out = io.StringIO()
    console = ResultConsole(file=out, force_terminal=True, width=80)
    print_table([{"a": "\x1b]0;title\x07\x9b31m\tü\nnext"}], [Column("a", "a")], console)
    assert "\\x1b]0;title\\x07\\x9b31m\\x09ü" in out.getvalue()
    assert out.getvalue().splitlines()[-1].split() == ["next"]


def test_names_are_printed_as_they_are() -> None:
    # Bytes that are no text, half of a surrogate pair, the end of a style, and a command for the terminal.
    name = os.fsdecode(b"\xff") + "\ud800 [/red] \x1b[31m"
    shown = "\\xff\\ud800 [/red] \\x1b[31m"
    out = io.StringIO()
    console = ResultConsole(file=out, force_terminal=True, width=80)
    console.print(f"of {name}", soft_wrap=True)
    print_table([{"a": name}], [Column("a", "a")], console, title=name)
    assert next(line.rstrip() for line in out.getvalue().splitlines() if shown in line) == f"of {shown}"
    assert out.getvalue().count(shown) == 3
    out.getvalue().encode()


def test_tables_are_printed_page_by_page() -> None:
    out = io.StringIO()

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(1200):
            if number == 1100:
                assert out.getvalue().count("\n") > 900
            yield {"a": number}

    print_table(rows(), [Column("a", "number", 8)], ResultConsole(file=out, width=80))
    assert [line.strip() for line in out.getvalue().splitlines()] == ["number", *map(str, range(1200))]


def test_the_format_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, expected in ((True, OutputFormat.TABLE), (False, OutputFormat.JSONL)):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        assert choose_format(None) is expected
        assert choose_format(OutputFormat.TABLE) is OutputFormat.TABLE


def test_refusals_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        refuse("journal dump", "no such thing")
    assert caught.value.exit_code == 2
    assert capsys.readouterr() == ("", "bmqctl journal dump: no such thing\n")


@pytest.mark.parametrize(
    ("terminal", "delay_s", "shown"), [(True, 0.0, True), (True, 1000.0, False), (False, 0.0, False)]
)
def test_progress_shows_late_and_on_terminals(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, delay_s: float, shown: bool
) -> None:
    monkeypatch.setattr(LateProgress, "DELAY_S", delay_s)
    out = io.StringIO()
    with LateProgress("checking", Console(file=out, force_terminal=terminal, width=80)) as progress:
        for done in range(3):
            progress(done, 3)
    assert ("checking" in out.getvalue()) is shown


ROWS: list[dict[str, Any]] = [
    {"name": 'a "b", c\n', "key": b"\x0a", "count": 0},
    {"name": "d", "key": None, "count": [1, {"x": True}]},
]
COLUMNS = [Column("name", "the name"), Column("key", "key"), Column("count", "count")]


def test_rows_as_csv_can_be_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS, OutputFormat.CSV)
    found = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert found == [["name", "key", "count"], ['a "b", c\n', "0A", "0"], ["d", "", '[1, {"x": true}]']]


def test_rows_as_json_are_one_value_or_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS, OutputFormat.JSON)
    one = json.loads(capsys.readouterr().out)
    print_rows(ROWS, COLUMNS, OutputFormat.JSONL)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert one == lines == [ROWS[0] | {"key": "0A"}, ROWS[1]]


def test_formats_go_by_their_names_and_one_by_its_older_name() -> None:
    assert [parse_format(each) for each in ("table", "json", "jsonl", "csv", "json-line")] == [
        OutputFormat.TABLE,
        OutputFormat.JSON,
        OutputFormat.JSONL,
        OutputFormat.CSV,
        OutputFormat.JSONL,
    ]
    with pytest.raises(typer.BadParameter, match="'yaml' is not one of table, json, jsonl, csv"):
        parse_format("yaml")


def test_a_table_fits_a_narrow_terminal_and_colours_states() -> None:
    out = io.StringIO()
    console = ResultConsole(file=out, force_terminal=True, width=80)
    columns = [Column(key, key) for key in ("subject", "state", "found", "what to do")]
    row = {"subject": "clock", "state": "warning", "found": "nobody " * 12, "what to do": "run chrony " * 9}
    print_table([row, {**row, "state": "ok", "subject": "ok"}], columns, console)
    plain = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert max(map(len, plain.splitlines())) == 80
    assert plain.count("nobody") == 24
    assert "\x1b[33mwarning" in out.getvalue()
    # Only states are coloured: a name may be any word.
    assert out.getvalue().count("\x1b[32mok") == 1
