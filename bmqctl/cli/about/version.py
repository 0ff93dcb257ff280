"""`bmqctl version`: the version of the program."""

from __future__ import annotations

import typer

from bmqctl.common.version import version_text

__all__ = ["show_version"]


def show_version() -> None:
    """Print the version, the commit, and compiled or interpreted.

    Example:

        bmqctl version
    """
    typer.echo(version_text())
