"""The alarms of the broker: their names and the lines that they write, from its source."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import broker

__all__ = ["Alarm", "alarms", "alarms_page"]

from scripts.manual.markdown import code, heading, page, table

_WRITTEN = re.compile(r"(ALARM|PANIC) \[(\w+)\] (.*)", re.DOTALL)
# In the source of every alarm; other modules need not be parsed.
_MENTIONED = re.compile(r"\b(?:alarm|panic)\(|\b(?:ALARM|PANIC) \[")
_GAP = "…"


class Alarm(NamedTuple):
    """A place that raises an alarm; `…` stands for parts of the line that are known only at run time."""

    name: str
    severity: str
    line: str
    module: str


@cache
def alarms() -> tuple[Alarm, ...]:
    """List the places in the broker that raise an alarm, by name."""
    root = Path(next(iter(broker.__path__)))
    found = [
        alarm
        for path in sorted(root.rglob("*.py"))
        for alarm in _alarms_of(path, ".".join(path.relative_to(root.parent).with_suffix("").parts))
    ]
    return tuple(sorted(found))


def _alarms_of(path: Path, module: str) -> Iterator[Alarm]:
    source = path.read_text()
    if not _MENTIONED.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called in ("alarm", "panic") and len(node.args) == 3:
            for name in _names(node.args[1], module):
                yield Alarm(name, "ALARM" if called == "alarm" else "PANIC", _line(node.args[2]), module)
        elif isinstance(node.func, ast.Attribute) and (written := _WRITTEN.fullmatch(_line(node.args[0]))):
            severity, name, line = written.groups()
            yield Alarm(name, severity, line, module)


def _names(node: ast.expr, module: str) -> list[str]:
    """The names that an expression can have: a text, a constant of the module, or a text with an enumeration's name."""
    if isinstance(node, ast.Name):
        return [str(getattr(importlib.import_module(module), node.id))]
    line = _line(node)
    if _GAP not in line:
        return [line]
    from broker.bmq.queue.capacity import Fullness

    assert line == f"CAPACITY_STATE_{_GAP}", f"{module}: {line} is not known here"
    return [f"CAPACITY_STATE_{state.name}" for state in Fullness if state is not Fullness.NORMAL]


def _line(node: ast.expr) -> str:
    """The text of an expression, with gaps for interpolated values."""
    match node:
        case ast.Constant(value=str(value)):
            return re.sub(r"%[sd]", _GAP, value)
        case ast.JoinedStr(values=values):
            return "".join(_line(each) for each in values)
        case ast.BinOp(left=left, right=right):
            return _line(left) + _line(right)
        case _:
            return _GAP


def alarms_page() -> str:
    by_name: dict[str, list[Alarm]] = {}
    for each in alarms():
        by_name.setdefault(each.name, []).append(each)
    sections = (
        "\n\n".join(
            (
                heading(2, name, name.lower()),
                table(
                    ["begins with", "the line goes on", "written by"],
                    [[f"`{e.severity} [{name}]`", _shown(e.line), code(e.module)] for e in found],
                ),
            )
        )
        for name, found in by_name.items()
    )
    return page(
        "# Alarms",
        "An alarm is a line of the log at severity ERROR that begins with `ALARM [NAME]`, or with `PANIC [NAME]` if "
        "the broker cannot do a part of its work. Their names are those of the BlazingMQ broker where it has the same "
        f"alarm. `{_GAP}` stands for a value that is known only when the line is written. What to do about each is in "
        "[the operators' page](../operate/alarms.md).",
        *sections,
    )


def _shown(line: str) -> str:
    return code(" ".join(line.split())) if re.search(r"\w", line) else _GAP
