"""Groups of commands that list each command's summary and import its module only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from bmqctl.cli.arguments import check_arguments
from bmqctl.cli.help import plain_help
from bmqctl.common.ending import faults_end, standard_streams
from bmqctl.common.later import imported

__all__ = ["Entry", "lazy_group"]


class Entry(NamedTuple):
    """The location of a command: `attribute` of `module` is a `typer.Typer` or a function with Typer's annotations.

    `summary` is its line in the help of the group, which imports no command. A function that `dials` connects to a
    broker, which a context may name.
    """

    module: str
    attribute: str
    summary: str
    dials: bool = False

    @property
    def folder(self) -> str:
        """The folder of `bmqctl/cli` that has the command."""
        return self.module.split(".")[2]


def lazy_group(entries: Mapping[str, Entry], titles: Mapping[str, str] = MappingProxyType({})) -> type[TyperGroup]:
    """Make a class for `typer.Typer(cls=...)`: the entries are stand-ins until one of them is run.

    The help lists the entries of each folder under its title.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, entry in entries.items():
                self.commands[name] = TyperCommand(name, help=entry.summary, short_help=entry.summary)
            plain_help(self, lambda name: titles.get(entries[name].folder, "Commands"))

        def main(self, *words: Any, **settings: Any) -> Any:
            with standard_streams():
                return super().main(*words, **settings)

        def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
            # The options for help and for the version print here.
            with faults_end(lambda: ""):
                return super().make_context(info_name, args, parent, **extra)

        def invoke(self, ctx: Any) -> Any:
            with faults_end(lambda: f"{ctx.command_path} {ctx.invoked_subcommand or ''}".partition(" ")[2].strip()):
                return super().invoke(ctx)

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, found, rest = super().resolve_command(ctx, args)
            if name is not None and name in entries:
                found = _load(name, entries[name])
            return name, found, rest

    return LazyGroup


def _dialing_command() -> type[TyperCommand]:
    from bmqctl.cli.contexts.command import DialingCommand

    return DialingCommand


def _load(name: str, entry: Entry) -> Any:
    found = getattr(imported(entry.module), entry.attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name, cls=_dialing_command() if entry.dials else None)(found)
        found = single
    command = get_command(found)
    command.name = name
    check_arguments(command)
    plain_help(command)
    return command
