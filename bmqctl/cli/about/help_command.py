"""`bmqctl help`: the help of a command, as its option --help prints it."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["show_help"]


def show_help(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The words of a command.")] = None,
) -> None:
    """Show the help of a command.

    Examples:

        bmqctl help

        bmqctl help start node
    """
    root = context.find_root()
    root.command.main([*(command or ()), "--help"], prog_name=root.info_name)
