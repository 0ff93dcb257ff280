"""One topic or group of RocketMQ's masters: its definition shown, created, altered and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from bmqctl.cli.administer.changing import Changing, FieldSetting, Masters, make_changes
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Column, OutputFormat, print_rows, until_reader_leaves
from bmqctl.systems.administration import DefinitionHolder
from bmqctl.systems.definitions.model import ROCKETMQ, BadDefinitions, Definitions
from bmqctl.systems.opening import checked_definitions

__all__ = ["Name", "alter", "create", "delete", "show"]

NOUNS: Final = {"topics": "topic", "groups": "group"}

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_Fields = dict[str, Any]


def _fields_of(command: str, setting: FieldSetting, **named: object) -> _Fields:
    """Return the fields that options name: those of --set, and those of `named` that are given."""
    found: _Fields = {name: value for name, value in named.items() if value is not None}
    for text in setting.settings or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            refuse(command, f"--set {text}: expected FIELD=VALUE")
        field, dot, attribute = name.partition(".")
        if dot:
            before = found.get(field, {})
            if not isinstance(before, dict):
                refuse(command, f"--set {text}: {field} is given a value of its own, too")
            found[field] = {**before, attribute: value}
        else:
            found[field] = _value(value)
    return found


def _value(text: str) -> Any:
    """Read a number, `true`, `false` or other JSON; anything else is text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def show(kind: str, name: str, masters: Masters, wanted: OutputFormat | None) -> None:
    """Print the definition at each master; exit with code 2 if none has it."""
    command = f"{NOUNS[kind]} show"
    holders = _holders(command, kind, name, masters.places(command))
    rows = [
        {"broker": each.name, "field": field, "value": value}
        for each in holders
        for field, value in each.definitions.tables[kind][name].items()
    ]
    with until_reader_leaves():
        if wanted is OutputFormat.JSON:
            print(json.dumps({each.name: each.definitions.tables[kind][name] for each in holders}, indent=4))
        else:
            columns = [Column(each, each) for each in ("broker", "field", "value")]
            print_rows(rows, columns, wanted or OutputFormat.TABLE)


def create(kind: str, name: str, setting: FieldSetting, masters: Masters, **named: object) -> None:
    """Create a definition at each master; exit with code 2 if one has it."""
    command = f"{NOUNS[kind]} create"
    fields = _fields_of(command, setting, **named)
    places = masters.places(command)
    for each in places:
        if name in each.definitions.tables[kind]:
            refuse(command, f"{name}: broker {each.name} has it; `bmqctl {NOUNS[kind]} alter` changes it")
    _make(command, kind, name, places, {each.name: fields for each in places}, setting.changing(), masters)


def alter(kind: str, name: str, setting: FieldSetting, masters: Masters, **named: object) -> None:
    """Change fields of a definition at each master that has it; exit with code 2 if none has."""
    command = f"{NOUNS[kind]} alter"
    fields = _fields_of(command, setting, **named)
    places = _holders(command, kind, name, masters.places(command))
    wanted = {each.name: _altered(each.definitions.tables[kind][name], fields) for each in places}
    _make(command, kind, name, places, wanted, setting.changing(), masters)


def _altered(found: Mapping[str, Any], fields: _Fields) -> _Fields:
    """Return a definition with other fields; attributes that are not named stay."""
    altered = {**found, **fields}
    for field, value in fields.items():
        if isinstance(value, dict) and isinstance(found.get(field), dict):
            altered[field] = {**found[field], **value}
    return altered


def delete(kind: str, name: str, changing: Changing, masters: Masters) -> None:
    """Delete a definition at each master that has it; exit with code 2 if none has."""
    command = f"{NOUNS[kind]} delete"
    places = _holders(command, kind, name, masters.places(command))

    def without(place: DefinitionHolder) -> Definitions:
        table = {each: fields for each, fields in place.definitions.tables[kind].items() if each != name}
        return Definitions(ROCKETMQ, {kind: table})

    make_changes(command, places, without, changing, masters, prune=True)


def _holders(command: str, kind: str, name: str, places: Sequence[DefinitionHolder]) -> list[DefinitionHolder]:
    found = [each for each in places if name in each.definitions.tables[kind]]
    if not found:
        refuse(command, f"{name}: no such {NOUNS[kind]}; `bmqctl {NOUNS[kind]} list` lists them")
    return found


def _make(
    command: str,
    kind: str,
    name: str,
    places: Sequence[DefinitionHolder],
    wanted: Mapping[str, _Fields],
    changing: Changing,
    masters: Masters,
) -> None:
    def with_it(place: DefinitionHolder) -> Definitions:
        return Definitions(ROCKETMQ, {kind: {**place.definitions.tables[kind], name: definitions[place.name]}})

    try:
        definitions = {
            place: checked_definitions(Definitions(ROCKETMQ, {kind: {name: fields}})).tables[kind][name]
            for place, fields in wanted.items()
        }
    except BadDefinitions as fault:
        refuse(command, str(fault))
    make_changes(command, places, with_it, changing, masters)
