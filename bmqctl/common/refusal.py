"""The refusal of a command: one line, and exit code 2."""

from __future__ import annotations

from typing import NoReturn

import typer

from bmqctl.common.harmless import one_line

__all__ = ["EXIT_USAGE", "refuse"]

EXIT_USAGE = 2


def refuse(command: str, reason: str) -> NoReturn:
    """Print the reason on standard error and exit with code 2."""
    typer.echo(one_line(f"{f'bmqctl {command}'.strip()}: {reason}"), err=True)
    raise typer.Exit(EXIT_USAGE)
