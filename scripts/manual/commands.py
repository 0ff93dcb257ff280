"""The command line's reference: a page for each command, generated from Typer's declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from bmqctl.app import app
from scripts.manual.markdown import code, heading, page, table, text

__all__ = ["PROGRAM", "Command", "command_pages", "commands", "refusal_of"]

PROGRAM = "bmqctl"
_EXIT_CODES = re.compile(r"^Exit codes?: ", re.MULTILINE)


class Command(NamedTuple):
    """A command: the words of its name, and its declaration as Typer has it."""

    words: tuple[str, ...]
    command: Any
    context: Any

    @property
    def name(self) -> str:
        """The command as typed."""
        return " ".join(self.words)


def commands() -> list[Command]:
    """List every command, in the order of the help."""
    root = get_command(app)
    return list(_commands_of((PROGRAM,), root, root.make_context(PROGRAM, [], resilient_parsing=True)))


def _commands_of(words: tuple[str, ...], found: Any, context: Any) -> Iterator[Command]:
    if not isinstance(found, TyperGroup):
        yield Command(words, found, context)
        return
    for name in sorted(found.commands):
        # Resolving loads the command's module and replaces a stand-in.
        _, inner, _ = found.resolve_command(context, [name])
        assert isinstance(inner, TyperCommand | TyperGroup)
        inner_context = inner.make_context(name, [], parent=context, resilient_parsing=True)
        yield from _commands_of((*words, name), inner, inner_context)


def refusal_of(arguments: list[str]) -> str | None:
    """Return the error with which the program refuses these words; None if it accepts them."""
    found: Any = get_command(app)
    context = None
    words = [PROGRAM]
    while isinstance(found, TyperGroup):
        if not arguments or arguments[0] in ("--help", "--version"):
            return None
        if arguments[0] not in found.commands:
            return f"{' '.join(words)} has no command {arguments[0]!r}"
        context = found.make_context(words[-1], [], parent=context, resilient_parsing=True)
        name, found, arguments = found.resolve_command(context, arguments)
        words.append(str(name))
    try:
        found.make_context(words[-1], list(arguments), parent=context)
    except typer.Exit:
        return None
    except Exception as error:  # any exception is a refusal
        return f"{' '.join(words)}: {error}"
    return None


def command_pages() -> dict[str, str]:
    """Make the pages by path: an index, and a page for each top-level command with its subcommands."""
    by_page: dict[str, list[Command]] = {}
    for command in commands():
        by_page.setdefault(command.words[1], []).append(command)
    pages = {f"{name}.md": _page(name, found) for name, found in by_page.items()}
    rows = [
        [f"[`{each.name}`]({name}.md#{_anchor(each)})", text(_summary(each.command))]
        for name, found in by_page.items()
        for each in found
    ]
    pages["index.md"] = page(
        "# Command line",
        "Every command has `--help`. Unless stated otherwise, a command exits with 0 on success, and with 2 if it "
        "refuses its arguments.",
        table(["command", "description"], rows),
    )
    return pages


def _anchor(command: Command) -> str:
    return "-".join(command.words[1:])


def _summary(command: Any) -> str:
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())


def _page(name: str, found: list[Command]) -> str:
    single = len(found) == 1 and len(found[0].words) == 2
    blocks = [heading(1, f"{PROGRAM} {name}", name)]
    for each in found:
        if not single:
            blocks.append(heading(2, each.name, _anchor(each)))
        blocks += _described(each)
    return page(*blocks)


def _described(command: Command) -> list[str]:
    arguments = [each for each in command.command.params if each.param_type_name == "argument" and not each.hidden]
    options = [each for each in command.command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([command.name, *(["[OPTIONS]"] if options else []), *(_metavar(each) for each in arguments)])
    return [
        f"```text\n{usage}\n```",
        _prose(command.command.help or ""),
        table(
            ["argument", "meaning"],
            [[code(_metavar(each)), _meaning(each)] for each in arguments],
        ),
        table(
            ["option", "value", "default", "meaning"],
            [[_names(each), code(_value(command, each)), _default(each), _meaning(each)] for each in options],
        ),
    ]


def _prose(help_text: str) -> str:
    """Convert a docstring to Markdown: its indented lines are command lines."""
    blocks: list[str] = []
    lines: list[str] = []
    for block in inspect.cleandoc(help_text).split("\n\n"):
        if block.startswith("    "):
            lines += [line.strip() for line in block.splitlines()]
            continue
        if lines:
            blocks.append(_fence(lines))
            lines = []
        # Typer marks paragraphs that are not to be wrapped with a backspace.
        blocks.append(_EXIT_CODES.sub("**Exit codes:** ", text(block.replace("\b", "").strip("\n"))))
    if lines:
        blocks.append(_fence(lines))
    return "\n\n".join(blocks)


def _fence(lines: list[str]) -> str:
    return "```sh\n" + "\n".join(lines) + "\n```"


def _metavar(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    if argument.nargs != 1 and not name.endswith("..."):
        name += "..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join(code(name) for name in option.opts)
    negative = ", ".join(code(name) for name in option.secondary_opts)
    return f"{names} / {negative}" if negative else names


def _value(command: Command, option: Any) -> str:
    if option.is_flag:
        return ""
    if option.min is not None or option.max is not None:
        least, most = ("" if each is None else str(each) for each in (option.min, option.max))
        return f"{least}..{most}"
    return str(option.metavar or option.display_type(ctx=command.context)).strip("[]<>")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or default == () or default == [] or callable(default) or parameter.show_default is False:
        return ""
    if parameter.is_flag:
        return "yes" if default else ""
    return code(getattr(default, "value", default))


def _meaning(parameter: Any) -> str:
    return text(" ".join((parameter.help or "").split()))
