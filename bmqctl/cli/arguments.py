"""The check of the words on the command line, the same for every command.

An empty word, such as a script's variable without a value, is refused: an empty host would be all addresses of the
machine, an empty path the current folder, and an empty authority or secret a connection without it. So is a number that
is no time and no count: waits are bounded by what the operating system can wait.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import typer

from bmqctl.common.refusal import refuse
from formats.addresses import read_host

__all__ = ["check_arguments", "given_options", "parse_host", "parse_moment"]


# Bounds of options that declare none: seconds and rates, and counts and sizes.
_FLOAT_MAX: Final = 1_000_000.0
_INT_MAX: Final = 1 << 62


def parse_host(text: str) -> str:
    """Return an address to listen on, without the brackets of an IPv6 address."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("a host is a text in UTF-8.") from None
    try:
        # `check_arguments` refuses an empty one, with the name of the option.
        return text and read_host(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}.") from None


def parse_moment(text: str) -> datetime:
    """Return a time of ISO 8601, of UTC unless it has a zone. Raises `typer.BadParameter`."""
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        found.timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time: write 2026-11-25T12:00:00, or with a zone.") from None
    return found


def check_arguments(command: Any) -> None:
    """Let a command, and those below it, refuse empty arguments and options, and meaningless numbers.

    A parameter with its own type decides by itself.
    """
    for each in getattr(command, "commands", {}).values():
        check_arguments(each)
    parse_args = command.parse_args

    def parse_and_check(context: Any, words: list[str]) -> Any:
        given, _, _ = command.make_parser(context).parse_args(args=list(words))
        rest = parse_args(context, words)
        if not context.resilient_parsing:
            for parameter in command.params:
                _check(context, parameter, given.get(parameter.name))
                _check_number(context, parameter)
        return rest

    command.parse_args = parse_and_check


def _check(context: Any, parameter: Any, given: Any) -> None:
    if all(each != "" for each in _each(given)):
        return
    value = context.params.get(parameter.name, given)
    if all(isinstance(each, str | Path) for each in _each(value)):
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name
        refuse(context.command_path.partition(" ")[2], f"{name} is empty: give a value, or leave it out")


def _check_number(context: Any, parameter: Any) -> None:
    """Refuse a number beyond the default bounds, for an option without a maximum."""
    if getattr(parameter, "max", None) is not None:
        return
    for value in _each(context.params.get(parameter.name)):
        most = _FLOAT_MAX if isinstance(value, float) else _INT_MAX
        if isinstance(value, int | float) and not -most <= value <= most:
            bound = f"{most:.0f} at most" if value > 0 else f"{-most:.0f} at least"
            wanted = "a number" if math.isnan(value) else bound
            refuse(context.command_path.partition(" ")[2], f"{parameter.opts[0]} is {value}: give {wanted}")


def _each(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list | tuple) else (value,)


def given_options(context: typer.Context, names: Container[str]) -> Iterator[str]:
    """Yield those options among `names` that are on the command line."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in names and source is not None and source.name == "COMMANDLINE":
            yield parameter.opts[0]
