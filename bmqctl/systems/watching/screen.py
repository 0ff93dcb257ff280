"""The screen of `bmqctl top`, with textual, which is an extra: import this module only for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import Button, DataTable, Footer, Input, Static

from bmqctl.common.harmless import one_line
from bmqctl.common.render import escaped
from bmqctl.systems.watching.cells import HEADS, cells_of
from bmqctl.systems.watching.model import COLUMNS, NodeState, Row, Selection, selected
from bmqctl.systems.watching.watcher import Shown, Watcher, purge_text

__all__ = ["Top"]

ROWS_MAX = 1_000
_TEXT_COLUMNS = ("name", "part", "node")


class Confirmation(ModalScreen[bool]):
    """A question about an action; only the button, or `y`, confirms it."""

    DEFAULT_CSS = """
    Confirmation { align: center middle; }
    Confirmation > Vertical { width: 80; height: auto; border: thick $error; padding: 1 2; background: $surface; }
    Confirmation Horizontal { height: auto; align-horizontal: right; margin-top: 1; }
    Confirmation Button { margin-left: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Purge"),
        Binding("n,escape", "answer(False)", "Cancel"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        """Make the dialogue; the harmless button is first, and has the focus."""
        with Vertical():
            yield Static(Text(escaped(self.text)), id="question")
            with Horizontal():
                yield Button("Cancel (n)", id="no")
                yield Button("Purge (y)", id="yes", variant="error")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Top(App[None]):
    """The rows of a cluster, refreshed every `interval_s`; samples and purges run in threads."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #status { height: 1; background: $panel; padding: 0 1; }
    #faults { height: auto; max-height: 4; color: $error; padding: 0 1; }
    #filter { display: none; }
    #filter.open { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("n", "nodes", "Nodes"),
        Binding("p", "purge", "Purge"),
        Binding("space", "pause", "Pause"),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(self, watcher: Watcher, interval_s: float, place: str, selection: Selection) -> None:
        super().__init__()
        self._watcher = watcher
        self._interval_s = interval_s
        self._place = place
        self.selection = selection
        self.shown: Shown | None = None
        self.rows: list[Row] = []
        self.shows_nodes = False
        self.is_paused = False
        self.is_asking = False
        self.message = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="status")
        yield Static("", id="faults")
        yield Input(placeholder="part of a name; Enter keeps it, Escape clears it", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        self.set_interval(self._interval_s, self.take)
        self.take()

    # -- samples

    def take(self) -> None:
        """Take a sample, unless one is being taken."""
        if not self.is_asking and not self.is_paused:
            self.is_asking = True
            self.run_worker(self._ask, thread=True)

    def _ask(self) -> None:
        try:
            found: Shown | str = self._watcher.next()
        except self._watcher.faults as fault:
            found = str(fault)
        except (LookupError, TypeError, ValueError, AttributeError) as fault:
            found = f"a broker's answer cannot be read: {type(fault).__name__}: {fault}"
        self.call_from_thread(self._take, found)

    def _take(self, found: Shown | str) -> None:
        self.is_asking = False
        if isinstance(found, str):
            self.message = found
        else:
            self.shown, self.message = found, ""
        self.draw()

    # -- display

    def draw(self) -> None:
        """Show the rows, or the nodes, of the last sample; the cursor stays on its row."""
        table = self.query_one(DataTable)
        at = table.coordinate_to_cell_key(Coordinate(table.cursor_row, 0)) if table.row_count else None
        table.clear(columns=True)
        if self.shows_nodes:
            self._draw_nodes(table, self.shown.sample.nodes if self.shown else ())
        else:
            self._draw_rows(table)
        if at is not None and at.row_key in table.rows:
            table.move_cursor(row=table.get_row_index(at.row_key))
        self._draw_lines()

    def _draw_rows(self, table: DataTable[Text]) -> None:
        self.rows = [] if self.shown is None else selected(self.shown.rows, self.selection)[:ROWS_MAX]
        columns = [each for each in COLUMNS if each != "part" or self.selection.within is not None]
        for name in columns:
            mark = (" ▼" if self.selection.is_descending else " ▲") if name == self.selection.sort else ""
            table.add_column(HEADS[name] + mark, key=name)
        for row in self.rows:
            cells = cells_of(row)
            texts = [
                Text(one_line(cells[name]), justify="left" if name in _TEXT_COLUMNS else "right") for name in columns
            ]
            table.add_row(*texts, key=f"{row.name}\0{row.part}")

    def _draw_nodes(self, table: DataTable[Text], nodes: tuple[NodeState, ...]) -> None:
        for head in ("NODE", "ADDRESS", "ROLE", "STATE", "BEHIND"):
            table.add_column(head)
        for each in nodes:
            behind = "-" if each.lag is None else f"{each.lag:,}"
            texts = [Text(one_line(cell)) for cell in (*each[:4], behind)]
            table.add_row(*texts, key=f"{each.node}\0{each.address}")

    def _draw_lines(self) -> None:
        selection = self.selection
        system = "" if self.shown is None else self.shown.sample.system
        words = [system, self._place, f"every {self._interval_s:g} s", "paused" if self.is_paused else ""]
        words.append(f"within {selection.within}" if selection.within else "")
        words.append(f"on {selection.node}" if selection.node else "")
        words.append(f"filter {selection.text!r}" if selection.text else "")
        self.query_one("#status", Static).update(Text(escaped("   ".join(word for word in words if word))))
        faults = [self.message] if self.message else []
        faults += [] if self.shown is None else list(self.shown.sample.faults)
        self.query_one("#faults", Static).update(Text(escaped("\n".join(faults))))

    # -- keys

    def action_sort(self) -> None:
        columns = [each for each in COLUMNS if each != "part" or self.selection.within is not None]
        at = columns.index(self.selection.sort) if self.selection.sort in columns else -1
        self._select(sort=columns[(at + 1) % len(columns)])

    def action_reverse(self) -> None:
        self._select(is_descending=not self.selection.is_descending)

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.focus()

    def action_nodes(self) -> None:
        self.shows_nodes = not self.shows_nodes
        self.draw()

    def action_pause(self) -> None:
        self.is_paused = not self.is_paused
        self.draw()

    def action_leave(self) -> None:
        """Leave the filter, else the nodes, else the queue or topic, else the node."""
        box = self.query_one("#filter", Input)
        if box.has_class("open") or self.selection.text:
            box.value = ""
            box.remove_class("open")
            self.query_one(DataTable).focus()
            self._select(text="")
        elif self.shows_nodes:
            self.action_nodes()
        elif self.selection.within is not None:
            self._select(within=None)
        else:
            self._select(node=None)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._select(text=event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.remove_class("open")
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        name, _, rest = str(event.row_key.value).partition("\0")
        if self.shows_nodes:
            self.shows_nodes = False
            self._select(node=name)
        elif not rest and self.selection.within is None:
            self._select(within=name)

    def action_purge(self) -> None:
        table = self.query_one(DataTable)
        if self.shows_nodes or not table.is_valid_row_index(table.cursor_row) or table.cursor_row >= len(self.rows):
            return
        row = self.rows[table.cursor_row]
        purge = self._watcher.purge
        if purge is None:
            self._say("RocketMQ removes messages by their age only: reset the offset of a group instead")
            return

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self.run_worker(lambda: self._purge(row), thread=True)

        self.push_screen(Confirmation(purge_text(row)), answered)

    def _purge(self, row: Row) -> None:
        assert self._watcher.purge is not None
        try:
            done = self._watcher.purge(row.name, row.part)
        except self._watcher.faults as fault:
            done = f"not purged: {fault}"
        self.call_from_thread(self._say, done)

    def _say(self, message: str) -> None:
        self.message = message
        self.notify(escaped(message), markup=False)
        self.draw()

    def _select(self, **changes: Any) -> None:
        self.selection = replace(self.selection, **changes)
        self.draw()
