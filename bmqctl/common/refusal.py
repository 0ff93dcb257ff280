"""The refusal of a command: one line, and exit code 2."""

from __future__ import annotations

from typing import NoReturn

import typer

from bmqctl.common.harmless import one_line
from broker.shell.process.os_errors import with_remedy

__all__ = ["EXIT_USAGE", "refuse", "say", "with_remedy"]

EXIT_USAGE = 2


def refuse(command: str, reason: str) -> NoReturn:
    """Print the reason on standard error and exit with code 2."""
    say(command, reason)
    raise typer.Exit(EXIT_USAGE)


def say(command: str, text: str) -> None:
    typer.echo(one_line(f"{f'bmqctl {command}'.strip()}: {with_remedy(text)}"), err=True)
