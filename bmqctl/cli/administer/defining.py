"""One definition, such as a topic or a user: shown, listed, created, altered and deleted at each holder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from bmqctl.cli.administer.changing import Changing, Holders, Within, make_changes
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Column, OutputFormat, print_rows, until_reader_leaves
from bmqctl.systems.administration import DefinitionHolder
from bmqctl.systems.definitions.model import BadDefinitions, Definitions, flattened
from bmqctl.systems.opening import checked_definitions

__all__ = ["Name", "alter", "create", "delete", "list_all", "show"]


class _Noun(NamedTuple):
    """The command for a kind of definitions, the word for one, and its verb for a change."""

    command: str
    one: str
    changes: str = "alter"


_NOUNS: Final = {
    "topics": _Noun("topic", "topic"),
    "groups": _Noun("group", "group"),
    "users": _Noun("user", "user"),
    "acls": _Noun("acl", "right"),
    "settings": _Noun("config", "setting", "set"),
    "domains": _Noun("domain", "domain"),
}

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_Fields = Mapping[str, Any]


def show(kind: str, name: str, at: Holders, wanted: OutputFormat | None) -> None:
    """Print the definition of each holder; exit with code 2 if none has it."""
    command = f"{_NOUNS[kind].command} show"
    holders = _having(command, kind, name, at.places(command, (kind,)))
    rows = [
        {"broker": each.name, "field": field, "value": value}
        for each in holders
        for field, value in flattened(each.definitions.tables[kind][name])
    ]
    with until_reader_leaves():
        if wanted is OutputFormat.JSON:
            print(json.dumps({each.name: each.definitions.tables[kind][name] for each in holders}, indent=4))
        else:
            columns = [Column(each, each) for each in ("broker", "field", "value")]
            print_rows(rows, columns, wanted or OutputFormat.TABLE)


def list_all(kind: str, at: Holders, wanted: OutputFormat | None, fields: Sequence[str]) -> None:
    rows = (
        {"name": name, "broker": each.name, **{field: found.get(field) for field in fields}}
        for each in at.places(f"{_NOUNS[kind].command} list", (kind,))
        for name, found in sorted(each.definitions.tables[kind].items())
    )
    with until_reader_leaves():
        print_rows(rows, [Column(each, each) for each in ("name", "broker", *fields)], wanted or OutputFormat.TABLE)


def create(kind: str, name: str, changing: Changing, at: Holders, fields: _Fields) -> None:
    """Create a definition at each holder; exit with code 2 if one has it. None stands for a field's default."""
    noun = _NOUNS[kind]
    command = f"{noun.command} create"
    places = at.places(command, (kind,))
    for each in places:
        if name in each.definitions.tables[kind]:
            refuse(command, f"{name}: broker {each.name} has it; `bmqctl {noun.command} {noun.changes}` changes it")
    _make(command, kind, name, [(each, _given(fields)) for each in places], changing, at)


def alter(kind: str, name: str, changing: Changing, at: Holders, fields: _Fields) -> None:
    """Change fields of a definition at each holder that has it; exit with code 2 if none has. None leaves a field."""
    noun = _NOUNS[kind]
    command = f"{noun.command} {noun.changes}"
    places = _having(command, kind, name, at.places(command, (kind,)))
    wanted = [(each, _altered(each.definitions.tables[kind][name], _given(fields))) for each in places]
    _make(command, kind, name, wanted, changing, at)


def _given(fields: _Fields) -> _Fields:
    return {name: value for name, value in fields.items() if value is not None}


def _altered(found: _Fields, fields: _Fields) -> _Fields:
    altered = {**found, **fields}
    for field, value in fields.items():
        if isinstance(value, Within) and isinstance(found.get(field), dict):
            altered[field] = _altered(found[field], value)
    return altered


def delete(kind: str, name: str, changing: Changing, at: Holders) -> None:
    """Delete a definition at each holder that has it; exit with code 2 if none has."""
    command = f"{_NOUNS[kind].command} delete"
    places = _having(command, kind, name, at.places(command, (kind,)))

    def without(place: DefinitionHolder) -> Definitions:
        table = {each: fields for each, fields in place.definitions.tables[kind].items() if each != name}
        return Definitions(place.definitions.system, {kind: table})

    make_changes(command, places, without, changing, at, prune=True)


def _having(command: str, kind: str, name: str, places: Sequence[DefinitionHolder]) -> list[DefinitionHolder]:
    found = [each for each in places if name in each.definitions.tables[kind]]
    if not found:
        noun = _NOUNS[kind]
        where = "the manual's reference" if kind == "settings" else f"`bmqctl {noun.command} list`"
        refuse(command, f"{name}: no such {noun.one}; {where} lists them")
    return found


def _make(
    command: str,
    kind: str,
    name: str,
    wanted: Sequence[tuple[DefinitionHolder, _Fields]],
    changing: Changing,
    at: Holders,
) -> None:
    def with_it(place: DefinitionHolder) -> Definitions:
        table = {**place.definitions.tables[kind], name: definitions[place.name]}
        return Definitions(place.definitions.system, {kind: table})

    definitions: dict[str, _Fields] = {}
    for place, fields in wanted:
        try:
            checked = checked_definitions(Definitions(place.definitions.system, {kind: {name: fields}}))
        except BadDefinitions as fault:
            refuse(command, str(fault))
        definitions[place.name] = checked.tables[kind][name]
    make_changes(command, [place for place, _ in wanted], with_it, changing, at)
