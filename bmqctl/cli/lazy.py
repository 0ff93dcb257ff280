"""Groups of commands that list each command's summary and import its module only when it runs."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from bmqctl.cli.arguments import check_arguments
from bmqctl.common.ending import faults_end, standard_streams
from bmqctl.common.later import imported

__all__ = ["Entry", "lazy_group"]

WIDTH_MAX: Final = 100
NAMES_WIDTH_MAX: Final = 26


"""Columns of the names; the description of a longer name begins on the next line."""

_VALUES: Final = (
    (re.compile(r"\|"), ""),
    (re.compile(r"int"), "N"),
    (re.compile(r"float"), "NUMBER"),
    (re.compile(r"path|file|directory"), "PATH"),
)
"""Python's types, as Typer names them, and the word for a value; an empty word keeps the name, a list of choices."""


_BOUNDS: Final = re.compile(r"(?:([\d.]+)<=)?x(?:([<>]=)(-?[\d.]+))(?=[;\]])")


def plain_help(command: Any, title_of: Callable[[str], str] = lambda name: "Commands") -> None:
    """Replace the help of a command and of the commands in it; `title_of` names the section of each of them.

    The help has plain columns that fit a terminal of 80 columns, and the examples last. Typer's own tables leave the
    descriptions a third of such a terminal, and name Python's types.
    """
    for each in getattr(command, "commands", {}).values():
        plain_help(each)
    command.rich_markup_mode = None

    def format_usage(context: Any, formatter: Any) -> None:
        formatter.write_usage(context.command_path, _usage(command))

    def format_help(context: Any, formatter: Any) -> None:
        formatter.width = max(min(shutil.get_terminal_size().columns, WIDTH_MAX) - 1, 40)
        format_usage(context, formatter)
        prose, examples = _divided(inspect.cleandoc(command.help or ""))
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(prose)
        parameters = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
        _section(formatter, "Arguments", [_row(each, context) for each in parameters if not _is_option(each)])
        _section(formatter, "Options", [_row(each, context) for each in parameters if _is_option(each)])
        for title, rows in _listed(getattr(command, "commands", {}), title_of):
            _section(formatter, title, rows)
        if examples:
            formatter.write_paragraph()
            formatter.write_heading(_bold("Examples"))
            for line in examples:
                formatter.write(f"  {line}\n")

    command.format_usage, command.format_help = format_usage, format_help


def _bold(text: str) -> str:
    # Click removes the codes where standard output is no terminal.
    return typer.style(text, bold=True)


def _divided(text: str) -> tuple[str, list[str]]:
    """Return the paragraphs of a docstring, and the lines of its examples."""
    paragraphs: list[str] = []
    examples: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            examples += [line[4:] for line in paragraph.splitlines()]
        elif not re.fullmatch(r"Examples?:", paragraph.strip()):
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs), examples


def _usage(command: Any) -> str:
    if hasattr(command, "commands"):
        return "[OPTIONS] COMMAND ..."
    return " ".join(["[OPTIONS]", *(_argument(each) for each in command.params if not _is_option(each))])


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    if parameter.nargs != 1 and not name.endswith("..."):
        name += "..."
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _row(parameter: Any, context: Any) -> tuple[str, str]:
    record = parameter.get_help_record(context)
    description = _BOUNDS.sub(_in_words, record[1] if record else "").replace("  [required]", "")
    if not _is_option(parameter):
        return _argument(parameter), description
    # Short names first, as in other programs' help.
    names = ", ".join(sorted(parameter.opts, key=lambda name: name.startswith("--")))
    if parameter.secondary_opts:
        names += " / " + ", ".join(parameter.secondary_opts)
    value = "" if parameter.is_flag or parameter.count else _value(parameter, context)
    if len(value) > NAMES_WIDTH_MAX * 2:
        value, description = "WORD", f"{description}  [{value.replace('|', ', ')}]"
    return f"{names} {value}".rstrip(), description


def _in_words(bounds: re.Match[str]) -> str:
    least, sign, number = bounds.groups()
    if least:
        return f"{least} to {number}"
    return f"at least {number}" if sign == ">=" else f"at most {number}"


def _value(parameter: Any, context: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    kind = str(parameter.display_type(context)).strip("<>").lower().removeprefix("list[").removesuffix("]")
    for pattern, word in _VALUES:
        if pattern.search(kind):
            return word or kind
    return "TEXT"


def _listed(
    commands: Mapping[str, Any], title_of: Callable[[str], str]
) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, each in commands.items():
        if not each.hidden:
            sections.setdefault(title_of(name), []).append((name, each.get_short_help_str(limit=200)))
    yield from sections.items()


def _section(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(_bold(title)):
            formatter.write_dl(rows, col_max=NAMES_WIDTH_MAX)


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


@cache
def _load(name: str, entry: Entry) -> Any:
    """Import and make a command, once in a process: Typer takes longer to make one than most take to run."""
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
