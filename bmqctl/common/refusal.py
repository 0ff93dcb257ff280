"""The refusal of a command: one line, and exit code 2."""

from __future__ import annotations

import errno
import os
from typing import Final, NoReturn

import typer

from bmqctl.common.harmless import one_line

__all__ = ["EXIT_USAGE", "refuse", "say", "with_remedy"]

EXIT_USAGE = 2

_REMEDIES: Final = {
    os.strerror(errno.EMFILE): "raise the limit of open files (ulimit -n)",
    os.strerror(errno.ENFILE): "raise the system's limit of open files (fs.file-max)",
}


def refuse(command: str, reason: str) -> NoReturn:
    """Print the reason on standard error and exit with code 2."""
    say(command, reason)
    raise typer.Exit(EXIT_USAGE)


def say(command: str, text: str) -> None:
    """Print a line on standard error."""
    typer.echo(one_line(f"{f'bmqctl {command}'.strip()}: {with_remedy(text)}"), err=True)


def with_remedy(reason: str) -> str:
    """Return a reason with the remedy for too few descriptors, on any of the ways that report them as a text only."""
    found = (f"; {remedy}" for text, remedy in _REMEDIES.items() if text in reason and remedy not in reason)
    return reason + "".join(found)
