"""The check of the words on the command line, the same for every command.

A word is refused where a script's variable has no value: an empty host would be all addresses of the machine, an empty
path the current folder, and an empty authority or secret a connection without it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import typer

from bmqctl.common.refusal import refuse

__all__ = ["check_arguments", "parse_host", "parse_moment"]

_NO_HOST: Final = re.compile(r"[\s/\[\]]")


def parse_host(text: str) -> str:
    """Return an address to listen on, without the brackets of an IPv6 address."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("a host is a text in UTF-8.") from None
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if _NO_HOST.search(host) or (":" in host and not _is_ipv6(host)):
        raise typer.BadParameter(f"{text!r} is neither an address nor the name of a host.")
    return host


def parse_moment(text: str) -> datetime:
    """Return a time of ISO 8601, of UTC unless it has a zone. Raises `typer.BadParameter`."""
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        found.timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time: write 2026-11-25T12:00:00, or with a zone.") from None
    return found


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def check_arguments(command: Any) -> None:
    """Let a command, and those below it, refuse empty arguments and options before they run.

    A parameter that has a type of its own decides by itself.
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
        return rest

    command.parse_args = parse_and_check


def _check(context: Any, parameter: Any, given: Any) -> None:
    if all(each != "" for each in _each(given)):
        return
    value = context.params.get(parameter.name, given)
    if all(isinstance(each, str | Path) for each in _each(value)):
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name
        refuse(context.command_path.partition(" ")[2], f"{name} is empty: give a value, or leave it out")


def _each(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list | tuple) else (value,)
