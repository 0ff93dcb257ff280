"""Chunks of a journal as text: JSON lines, CSV, and the JSON of the reference's tool.

A template for each kind of record is filled with columns; shared values are formatted once. A record thus costs little
more than formatting its own numbers. The lines equal those of `columns.rows_of`, the readable implementation.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from bmqctl.common.harmless import csv_text
from bmqctl.stores.blazingmq.read.chunks import Chunk, Part
from bmqctl.stores.blazingmq.read.columns import Column, Columns, Constant, Derived, Hex, Number, Value, column_order
from bmqctl.stores.blazingmq.read.names import QueueNames

__all__ = ["CsvStyle", "JsonLineStyle", "PrettyStyle", "Style", "TextWriter"]

REMEMBERED = 1 << 16


class Style(Protocol):
    """The layout of a line. Templates are for `bytes %`: numbers have slots %d, other values %b."""

    def template(self, groups: tuple[Columns, ...]) -> bytes:
        """Return the line of a kind of record, with a slot for each group except constants."""

    def derived(self, columns: tuple[Column, ...], values: tuple[Value, ...]) -> bytes:
        """Format a group of derived columns for its slot."""


class JsonLineStyle:
    header = b""

    def template(self, groups: tuple[Columns, ...]) -> bytes:
        return b"{" + b"".join(map(self._slot, groups)).removeprefix(b", ") + b"}\n"

    def _slot(self, group: Columns) -> bytes:
        if isinstance(group, Derived):
            return b"%b"
        return (
            b", " + _name(group) + b": " + (_slot(group) if isinstance(group, Number) else b'"' + _slot(group) + b'"')
        )

    def derived(self, columns: tuple[Column, ...], values: tuple[Value, ...]) -> bytes:
        return "".join(
            f", {json.dumps(column.name)}: {json.dumps(value)}"
            for column, value in zip(columns, values, strict=True)
            if value is not None
        ).encode()


class PrettyStyle:
    """The reference tool's `json-pretty`: all values strings, each name on its own line, a comma after each."""

    def template(self, groups: tuple[Columns, ...]) -> bytes:
        return b"    {" + b"".join(map(self._slot, groups)).removeprefix(b",") + b"\n    },\n"

    def _slot(self, group: Columns) -> bytes:
        return b"%b" if isinstance(group, Derived) else b",\n      " + _name(group) + b': "' + _slot(group) + b'"'

    def derived(self, columns: tuple[Column, ...], values: tuple[Value, ...]) -> bytes:
        return "".join(
            f",\n      {json.dumps(column.name)}: {json.dumps(str(value))}"
            for column, value in zip(columns, values, strict=True)
            if value is not None
        ).encode()


class CsvStyle:
    """RFC 4180 except for Unix line ends; all lines have the columns of `header`."""

    def __init__(self, columns: Mapping[int, tuple[Columns, ...]]) -> None:
        self._order = [column.name for column in column_order(columns)]

    @property
    def header(self) -> bytes:
        return ",".join(self._order).encode() + b"\n"

    def template(self, groups: tuple[Columns, ...]) -> bytes:
        slots: list[bytes] = []
        by_name = {column.name: group for group in groups for column in group.columns}
        for name in self._order:
            group = by_name.get(name)
            if group is None:
                slots.append(b"")
            elif group.columns[0].name == name:
                slots.append(_slot(group))
        return b",".join(slots) + b"\n"

    def derived(self, columns: tuple[Column, ...], values: tuple[Value, ...]) -> bytes:
        return ",".join(map(_cell, values)).encode()


def _cell(value: Value) -> str:
    if value is None:
        return ""
    text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    if isinstance(value, str):
        text = csv_text(text)
    if not any(c in text for c in ',"\r\n'):
        return text
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([text])
    return out.getvalue()


def _name(group: Columns) -> bytes:
    return json.dumps(group.columns[0].name).encode()


def _slot(group: Columns) -> bytes:
    if isinstance(group, Constant):
        return group.value.encode()
    return b"%d" if isinstance(group, Number) else b"%b"


class TextWriter:
    """Formats chunks as lines of one style."""

    def __init__(self, style: Style, columns: Mapping[int, tuple[Columns, ...]], names: QueueNames) -> None:
        self._style = style
        self._columns = columns
        self._names = names
        self._version = names.version
        self._templates = {kind: style.template(groups) for kind, groups in columns.items()}
        self._memos = {
            id(group): _Memo(style, group)
            for groups in columns.values()
            for group in groups
            if isinstance(group, Derived)
        }

    def text(self, chunk: Chunk) -> bytes:
        if self._names.version != self._version:
            self._version = self._names.version
            for memo in self._memos.values():
                memo.clear()
        lines = np.empty(len(chunk), object)
        for part in chunk.parts():
            groups = self._columns[part.kind]
            slots = [self._values(group, part) for group in groups if not isinstance(group, Constant)]
            lines[part.rows] = list(map(self._templates[part.kind].__mod__, zip(*slots, strict=True)))
        return b"".join(lines.tolist())

    def _values(self, group: Number | Hex | Derived, part: Part) -> list[Any]:
        if not isinstance(group, Derived):
            return group.read(part).tolist()  # type: ignore[no-any-return]
        memo = self._memos[id(group)]
        keys = group.keys(part)
        if not group.shared:
            return [self._style.derived(group.columns, group.values(key)) for key in keys]
        if len(memo) > REMEMBERED:
            memo.clear()
        return list(map(memo.__getitem__, keys))


class _Memo(dict[Any, bytes]):
    """A cache of a group's formatted values, by the values from which they derive."""

    def __init__(self, style: Style, group: Derived) -> None:
        super().__init__()
        self._style = style
        self._group = group

    def __missing__(self, key: Any) -> bytes:
        text = self[key] = self._style.derived(self._group.columns, self._group.values(key))
        return text
