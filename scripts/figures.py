"""Figures that were measured, as the benchmarks print them: each beside what is wanted."""

from __future__ import annotations

import os
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "print_figures"]


class Figure(NamedTuple):
    """One measured value; `wanted` is what is to be reached, if anything is, and `reached` whether it was."""

    name: str
    value: float
    unit: str
    wanted: str = ""
    reached: bool | None = None


def print_figures(case: str, figures: list[Figure], load_before: float) -> None:
    """A row for each; the machine's load stands above them."""
    table = Table(box=None, pad_edge=False, title_justify="left")
    load = f"load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    table.title = f"{case}; {os.cpu_count()} processors, {load}"
    table.add_column(justify="right")
    for title in ("", "figure", "wanted", "reached"):
        table.add_column(title)
    for figure in figures:
        value = f"{figure.value:,.0f}" if figure.value >= 100 or not figure.unit else f"{figure.value:,.2f}"
        reached = {True: "yes", False: "no", None: ""}[figure.reached]
        table.add_row(value, figure.unit, figure.name, figure.wanted, reached)
    Console(width=120).print(table, "")
