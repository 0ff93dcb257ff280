"""Output of commands: tables for people, JSON lines for programs, progress on terminals.

Results go to standard output, everything else to standard error, so that a pipe carries results only. The modules
that draw are imported when something is drawn: the help of most commands imports this one.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from io import StringIO
from types import TracebackType
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bmqctl.common.ending import EXIT_READER_LEFT, silence
from bmqctl.common.harmless import csv_text, escaped, one_line
from bmqctl.common.pretty import pretty
from bmqctl.common.refusal import EXIT_USAGE, refuse

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from bmqctl.common.tables import ResultConsole

__all__ = [
    "EXIT_FAULTS",
    "EXIT_READER_LEFT",
    "EXIT_USAGE",
    "Column",
    "LateProgress",
    "Output",
    "OutputFormat",
    "aligned",
    "choose_format",
    "csv_line",
    "escaped",
    "parse_format",
    "print_csv",
    "print_json_lines",
    "print_lines",
    "print_report",
    "print_rows",
    "print_table",
    "print_values",
    "refuse",
    "until_reader_leaves",
    "wanted_format",
]

EXIT_FAULTS = 1


class OutputFormat(StrEnum):
    """Formats of rows: a table for people, one JSON value, one JSON object per line, or CSV with a header."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def parse_format(text: str) -> OutputFormat:
    try:
        return OutputFormat("jsonl" if text == "json-line" else text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(OutputFormat)}.") from None


Output = Annotated[
    OutputFormat | None,
    typer.Option(
        "--output",
        parser=parse_format,
        metavar="|".join(OutputFormat),
        help="Format of the output.",
        envvar="BMQCTL_OUTPUT",
        show_default=False,
    ),
]
"""The option of each command that prints rows; each command has its own default."""


def wanted_format(output: OutputFormat | None, as_json: bool) -> OutputFormat:
    """The format for `--output` and the older `--json`, which is `--output json`; a table by default."""
    return OutputFormat.JSON if as_json else output or OutputFormat.TABLE


def choose_format(wanted: OutputFormat | None) -> OutputFormat:
    """The requested format or, by default, a table on a terminal and JSON lines elsewhere."""
    if wanted is not None:
        return wanted
    return OutputFormat.TABLE if sys.stdout.isatty() else OutputFormat.JSONL


def print_rows(rows: Iterable[Mapping[str, Any]], columns: list[Column], wanted: OutputFormat) -> None:
    if wanted is OutputFormat.TABLE:
        print_table(rows, columns)
    else:
        print_values(rows, [column.key for column in columns], wanted)


def print_values(rows: Iterable[Mapping[str, Any]], keys: Iterable[str], wanted: OutputFormat) -> None:
    match wanted:
        case OutputFormat.JSON:
            print(pretty(list(rows), 4, default=_encodable))
        case OutputFormat.CSV:
            print_csv(rows, list(keys))
        case _:
            print_json_lines(rows)


def print_report(
    report: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], keys: Iterable[str], wanted: OutputFormat
) -> None:
    """Print a report for programs: as one line of JSON, or in other formats the rows among its parts."""
    if wanted is OutputFormat.JSON:
        print(json.dumps(report, default=_encodable))
    else:
        print_values(rows, keys, wanted)


def print_csv(rows: Iterable[Mapping[str, Any]], keys: list[str], stream: IO[str] | None = None) -> None:
    """Print a header, and each row as it comes; values other than texts and numbers are printed as JSON."""
    write = (stream or sys.stdout).write
    write(csv_line(keys))
    for row in rows:
        write(csv_line(row.get(key) for key in keys))


def csv_line(cells: Iterable[object]) -> str:
    """A line of CSV; values other than texts and numbers are JSON. Texts are made harmless: see `csv_text`."""
    text = StringIO()
    # With a line feed alone as line terminator, a carriage return in a cell would not be quoted.
    csv.writer(text, lineterminator="\r\n").writerow(map(_csv_cell, cells))
    return text.getvalue().removesuffix("\r\n") + "\n"


def _csv_cell(value: object) -> object:
    if isinstance(value, str):
        return csv_text(value)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    return _encodable(value) if isinstance(value, bytes) else json.dumps(value, default=_encodable)


@contextmanager
def until_reader_leaves() -> Iterator[None]:
    """Exit quietly with `EXIT_READER_LEFT` when the other end of the pipe is closed."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        raise typer.Exit(EXIT_READER_LEFT) from None


def print_json_lines(rows: Iterable[Mapping[str, Any]], stream: IO[str] | None = None) -> None:
    """Print each row as it comes as a line of JSON; bytes are printed in upper-case hex."""
    write = (stream or sys.stdout).write
    encode = json.JSONEncoder(default=_encodable, separators=(", ", ": ")).encode
    for row in rows:
        write(encode(row) + "\n")


def _encodable(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex().upper()
    raise TypeError(f"{type(value).__name__} in a row")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people. Line feeds and control characters in a line are escaped."""
    for line in lines:
        print(one_line(line))


def aligned(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    lines = [heads, *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


class Column(NamedTuple):
    """A column of a table: the row's key, the title, and a width in characters (None: the rest of the line)."""

    key: str
    title: str
    width: int | None = None
    right: bool = False


def print_table(
    rows: Iterable[Mapping[str, Any]],
    columns: list[Column],
    console: ResultConsole | None = None,
    title: str | None = None,
) -> None:
    from bmqctl.common.tables import TablePrinter

    TablePrinter(columns, console, title).print(rows)


class LateProgress:
    """A progress bar on standard error that appears only after a second, and only on a terminal."""

    DELAY_S = 1.0

    def __init__(self, description: str, console: Console | None = None) -> None:
        self._description = one_line(description)
        self._console = console
        self._started = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._started < self.DELAY_S:
                return
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            self._console = self._console or Console(stderr=True)
            if not self._console.is_terminal:
                return
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._description, total=total)
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)
