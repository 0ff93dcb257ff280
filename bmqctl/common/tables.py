"""Tables for people, on terminals and in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Literal

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bmqctl.common.harmless import escaped
from bmqctl.common.render import Column

__all__ = ["ResultConsole", "ResultTable", "TablePrinter"]

PAGE_ROWS = 500
LAST_WIDTH_MIN = 40
LAST_WIDTH_FILE = 160

_STATE_KEYS = ("state", "status", "severity", "kind")
_STATE_STYLES = {
    "ok": "green",
    "AVAILABLE": "green",
    "warning": "yellow",
    "note": "yellow",
    "error": "red",
    "fault": "red",
    "critical": "red",
    "GONE": "red",
    "UNREACHABLE": "red",
}


class ResultConsole(Console):
    """A console for results: plain text in files; a closed pipe raises rather than being swallowed.

    Names from messages and files are printed literally, neither as markup nor as control characters.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escaped(text), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class ResultTable(Table):
    """A table that indents the further lines of a cell, so that no name can look like another row."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; see `Table.add_row`."""
        super().add_row(*(cell.replace("\n", "\n  ") if isinstance(cell, str) else cell for cell in cells), **options)


class TablePrinter:
    """A table printed in parts: pages of a long one, or rows as they come.

    Pages align only if all columns but the last have a width. If these leave no room for the last one, lines
    are longer than the terminal's width.
    """

    def __init__(self, columns: list[Column], console: ResultConsole | None = None, title: str | None = None) -> None:
        self._columns = columns
        self._console = console or ResultConsole()
        if self._console.is_terminal:
            *others, last = columns
            # Cells without a width of their own are folded, so that a row keeps its columns on a narrow terminal.
            width = sum((column.width or len(column.title)) + 2 for column in others) + (last.width or LAST_WIDTH_MIN)
        else:
            width = sum((column.width or LAST_WIDTH_FILE) + 2 for column in columns)
        self._console.width = max(self._console.width, width)
        self._title = title
        self._first = True

    def print(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Print the rows, a page at a time, in constant memory."""
        remaining = iter(rows)
        while page := list(islice(remaining, PAGE_ROWS)):
            title, self._title = self._title, None
            table = ResultTable(box=None, show_header=self._first, title=title, title_justify="left", pad_edge=False)
            for column in self._columns:
                justify: Literal["left", "right"] = "right" if column.right else "left"
                table.add_column(column.title, width=column.width, justify=justify, overflow="fold")
            for row in page:
                table.add_row(*(_coloured(column.key, _cell(row.get(column.key))) for column in self._columns))
            self._console.print(table)
            self._first = False


def _coloured(key: str, cell: str) -> str | Text:
    style = _STATE_STYLES.get(cell) if key in _STATE_KEYS else None
    return cell if style is None else Text(cell, style)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return value.hex().upper() if isinstance(value, bytes) else str(value)
