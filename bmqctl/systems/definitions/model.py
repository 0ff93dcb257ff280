"""Definitions as values: read from JSON, compared, and written: pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "BLAZINGMQ",
    "KINDS",
    "ROCKETMQ",
    "Action",
    "BadDefinitions",
    "Change",
    "Definitions",
    "Table",
    "changes_between",
    "flattened",
    "one_of",
    "parse_definitions",
    "whole_changes",
]

NAMES_MAX: Final = 100_000
BLAZINGMQ: Final = "BlazingMQ"
ROCKETMQ: Final = "RocketMQ"
KINDS: Final = {BLAZINGMQ: ("domains",), ROCKETMQ: ("topics", "groups")}
"""The kinds that a file may have. Commands for one definition know others."""

Table = Mapping[str, Mapping[str, Any]]
Tables = Mapping[str, Table]


class BadDefinitions(Exception):
    """A file without definitions, or with invalid ones; the text says where, and why."""


class Definitions(NamedTuple):
    """The definitions of a system; an absent kind is left as it is."""

    system: str
    tables: Tables

    def to_text(self) -> str:
        return json.dumps({"system": self.system, **self.tables}, indent=4, sort_keys=True) + "\n"


class Action(StrEnum):
    """A kind of change."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class Change(NamedTuple):
    """A difference: of a whole definition, or of one field, with the present and the wanted value."""

    action: Action
    kind: str
    name: str
    field: str
    found: Any
    wanted: Any


def parse_definitions(text: str) -> Definitions:
    """Parse a file. Raises `BadDefinitions`, which names the place."""
    try:
        found = json.loads(text, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as fault:
        raise BadDefinitions(f"is not JSON: {fault}") from None
    if not isinstance(found, dict) or found.get("system") not in KINDS:
        raise BadDefinitions(f'system: expected one of {", ".join(KINDS)}, as in {{"system": "RocketMQ"}}')
    system = str(found["system"])
    for kind in sorted(found.keys() - {"system", *KINDS[system]}):
        raise BadDefinitions(f"{kind}: {system} has {' and '.join(KINDS[system])}")
    tables = {}
    for kind in KINDS[system]:
        if kind not in found:
            continue
        table = found[kind]
        if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
            raise BadDefinitions(f"{kind}: expected an object of objects by their names")
        if len(table) > NAMES_MAX:
            raise BadDefinitions(f"{kind}: there are more than {NAMES_MAX:,}")
        tables[kind] = table
    return Definitions(system, tables)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twin!r} occurs twice in an object")
    return found


def one_of(tables: Sequence[tuple[str, Definitions]]) -> Definitions:
    """Return the definitions that all named holders have. Raises `BadDefinitions` if they differ."""
    (first, found), *others = tables
    for other, theirs in others:
        for kind, table in found.tables.items():
            for name in sorted(table.keys() | theirs.tables[kind].keys()):
                if table.get(name) != theirs.tables[kind].get(name):
                    raise BadDefinitions(
                        f"{kind} {name} is not the same on brokers {first} and {other}; name one of them with "
                        "--broker-name"
                    )
    return found


def changes_between(found: Definitions, wanted: Definitions) -> Iterator[Change]:
    """Yield the changes from `found` to `wanted`, in the kinds of `wanted`."""
    for kind, table in wanted.tables.items():
        there = found.tables.get(kind, {})
        for name in sorted(there.keys() | table.keys()):
            if name not in table:
                yield Change(Action.DELETE, kind, name, "", there[name], None)
            elif name not in there:
                yield Change(Action.CREATE, kind, name, "", None, table[name])
            else:
                for field, old, new in _differences("", there[name], table[name]):
                    yield Change(Action.CHANGE, kind, name, field, old, new)


def whole_changes(found: Definitions, wanted: Definitions) -> list[Change]:
    names = dict.fromkeys((each.action, each.kind, each.name) for each in changes_between(found, wanted))
    return [
        Change(action, kind, name, "", found.tables.get(kind, {}).get(name), wanted.tables[kind].get(name))
        for action, kind, name in names
    ]


def flattened(fields: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in sorted(fields.items()):
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _differences(f"{path}.{name}" if path else name, old.get(name), new.get(name))
    # JSON's true is not 1.
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, old, new
